"""The training process: `python -m seal.training.main CONFIG.yaml`, started by the launcher.

Reads a resolved recipe, checks that SEAL's plugins are registered, starts or joins Ray and has `seal.training.runner`
train there. verl is imported by the processes that use it, and not here. The last log line says how the run ended; the
exit code (seal.system.exits) says what kind of ending that was.
"""

import logging
import os
import re
import sys
from importlib.metadata import entry_points

from omegaconf import OmegaConf

from seal.backends import weight_socket
from seal.records.folder import RunFolder
from seal.system import exits
from seal.system.text import first_line
from seal.training import cluster

logger = logging.getLogger(__name__)

ENDED = "training ended: "
"""Marks the log line that holds the reason."""
AGAIN = "Start again to resume from the last checkpoint."

NAMED = re.compile(r"\bname: (\S+)")
"""The name of a dead actor in Ray's error, which the trainer can meet before the watch does."""

PLUGINS = {"verl.plugins": "seal.backends.cpu_platform", "vllm.general_plugins": "seal.backends.vllm_plugin"}
"""The module that a library imports for SEAL, by its group of entry points; verl is silent about one that fails."""


def check_registrations() -> None:
    """RuntimeError if verl or vLLM would run without SEAL's plugin."""
    for group, module in PLUGINS.items():
        plugin = next((point for point in entry_points(group=group) if point.module == module), None)
        if plugin is None:
            raise RuntimeError(f"SEAL's plugin is not registered under {group}: run `bash install.sh` again.")
    chosen = os.environ.get("VLLM_PLUGINS")
    if chosen is not None and plugin.name not in chosen.split(","):
        raise RuntimeError(f"VLLM_PLUGINS={chosen} leaves out SEAL's plugin: add {plugin.name} to it.")


def main() -> int:
    """Run training; returns the process's exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    config = OmegaConf.load(sys.argv[1])

    check_registrations()
    weight_socket.claim()
    cluster.prepare(config)
    import ray  # reads the environment that has been prepared
    from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError

    from seal.training.runner import TaskRunner

    death = RunFolder(config.seal.run_dir).death
    death.unlink(missing_ok=True)
    try:
        ray.init(**OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True))
        ray.get(TaskRunner.remote().run.remote(config))
    except RayTaskError as error:
        code, said = ending(error)
        if code == exits.FAILED:
            logger.exception("the trainer raised an error")
        logger.error("%s%s", ENDED, said)
        return code
    except (RayActorError, OutOfMemoryError) as error:  # the latter if the machine ran low on memory
        died = f"A process of the run has died ({first_line(str(error), type(error).__name__).rstrip('.')})."
        reason = death.read_text(encoding="utf-8") if death.exists() else died
        logger.error("%s%s %s", ENDED, reason, AGAIN)
        return exits.INFRASTRUCTURE
    return exits.FINISHED


def ending(error: BaseException) -> tuple[int, str]:
    """The exit code and the launcher's sentence for what a worker raised, below the layers that Ray adds."""
    from ray.exceptions import OutOfMemoryError, RayActorError, RayError, RayTaskError
    from vllm.v1.engine.exceptions import EngineDeadError

    from seal.training.checkpoints import CheckpointError
    from seal.training.liveness import death
    from seal.training.stop import InfrastructureFailure, StopRequested

    while isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
        error = error.cause
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, EngineDeadError):
        said = f"The engine of a rollout server has died. {AGAIN}"
    if isinstance(error, OutOfMemoryError):
        said = f"A process of the run has died because the machine ran low on memory. {AGAIN}"
    if isinstance(error, RayActorError) and (named := NAMED.search(str(error))):
        said = f"{death(named[1])} {AGAIN}"
    codes = {
        StopRequested: exits.STOPPED,
        CheckpointError: exits.CHECKPOINT,
        (InfrastructureFailure, RayError, EngineDeadError): exits.INFRASTRUCTURE,
    }
    return next((code for kind, code in codes.items() if isinstance(error, kind)), exits.FAILED), said


if __name__ == "__main__":
    sys.exit(main())
