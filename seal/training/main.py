"""The training process: `python -m seal.training.main CONFIG.yaml`, started by the launcher.

Reads a resolved recipe, checks that SEAL's extensions are registered with verl
and calls verl's own entry point. The last log line says how the run ended; the
exit code (seal.system.exits) says what kind of ending that was.
"""

import logging
import os
import sys
from importlib.metadata import entry_points

from omegaconf import DictConfig, OmegaConf

from seal.backends import vllm_plugin, weight_socket
from seal.system import exits
from seal.system.text import first_line
from seal.training import cluster

logger = logging.getLogger(__name__)

ENDED = "training ended: "
"""Marks the log line that holds the reason."""


def check_registrations() -> None:
    """Import verl's plugin again, because verl swallows its import errors, and look for the one that vLLM loads."""
    from verl.plugin.platform.platform_manager import PlatformRegistry
    from verl.trainer.ppo.v1 import get_trainer_cls

    import seal.training.plugin  # noqa: F401

    if PlatformRegistry.get("cpu") is None or get_trainer_cls("seal") is None:
        raise RuntimeError("SEAL's platform and trainer did not register with verl: run `bash install.sh` again.")
    plugin = next((p for p in entry_points(group="vllm.general_plugins") if p.module == vllm_plugin.__name__), None)
    if plugin is None:
        raise RuntimeError("SEAL's plugin is not registered with vLLM: run `bash install.sh` again.")
    chosen = os.environ.get("VLLM_PLUGINS")
    if chosen is not None and plugin.name not in chosen.split(","):
        raise RuntimeError(f"VLLM_PLUGINS={chosen} leaves out SEAL's plugin: add {plugin.name} to it.")


def main() -> int:
    """Run training; returns the process's exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    config = OmegaConf.load(sys.argv[1])

    check_registrations()
    from ray.exceptions import RayTaskError
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    from seal.training.liveness import DEATHS, TRAINER, Liveness

    weight_socket.claim()
    cluster.prepare(config)
    drop_idle_reference(config)
    auto_set_device(config)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    liveness = Liveness()
    try:
        with liveness:
            run_ppo(config, task_runner_class=TaskRunnerV1.options(name=TRAINER))
    except RayTaskError as error:
        cause = root_cause(error)
        code = exit_code(cause)
        if code == exits.FAILED:
            logger.exception("the trainer raised an error")
        logger.error("%s%s", ENDED, sentence(cause))
        return code
    except DEATHS as error:
        reason = (
            liveness.reason
            or f"A process of the run has died ({first_line(str(error), type(error).__name__).rstrip('.')})."
        )
        logger.error("%s%s Start again to resume from the last checkpoint.", ENDED, reason)
        return exits.INFRASTRUCTURE
    return exits.FINISHED


def drop_idle_reference(config: DictConfig) -> None:
    """Let verl start no reference policy for a KL term whose coefficient is 0; config is changed in place."""
    actor = config.actor_rollout_ref.actor
    if actor.use_kl_loss and actor.kl_loss_coef == 0:
        actor.use_kl_loss = False


def root_cause(error: BaseException) -> BaseException:
    """Return what the worker raised, below the layers that Ray adds."""
    from ray.exceptions import RayTaskError

    while isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
        error = error.cause
    return error


def sentence(cause: BaseException) -> str:
    """What the launcher tells of an error of the trainer."""
    from ray.exceptions import OutOfMemoryError
    from vllm.v1.engine.exceptions import EngineDeadError

    again = "Start again to resume from the last checkpoint."
    if isinstance(cause, EngineDeadError):
        return f"The engine of a rollout server has died. {again}"
    if isinstance(cause, OutOfMemoryError):
        return f"A process of the run has died because the machine ran low on memory. {again}"
    return f"{type(cause).__name__}: {cause}"


def exit_code(cause: BaseException) -> int:
    """Return the exit code for an error of the trainer."""
    from ray.exceptions import RayError
    from vllm.v1.engine.exceptions import EngineDeadError

    from seal.training.checkpoints import CheckpointError
    from seal.training.stop import InfrastructureFailure, StopRequested

    if isinstance(cause, StopRequested):
        return exits.STOPPED
    if isinstance(cause, CheckpointError):
        return exits.CHECKPOINT
    if isinstance(cause, InfrastructureFailure | RayError | EngineDeadError):
        return exits.INFRASTRUCTURE
    return exits.FAILED


if __name__ == "__main__":
    sys.exit(main())
