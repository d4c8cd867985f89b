"""The training process: `python -m seal.training.main CONFIG.yaml`, started by the launcher.

Reads a resolved recipe, checks that SEAL's plugins are registered, starts or joins Ray and has `seal.training.runner`
train there. verl is imported by the processes that use it, and not here. `ending.json` says why the run ended early.
"""

import logging
import os
import signal
import sys
from importlib.metadata import entry_points

from omegaconf import DictConfig, OmegaConf

from seal.backends import vllm_plugin
from seal.records.ending import Ending
from seal.training import cluster
from seal.training.ending import TRAINER, record_ending

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


def main() -> None:
    """Run training; what ends it early is written into the run's folder and raised."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    config = OmegaConf.load(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # Ray's own handler, set later, exits too
    names: dict[str, str] = {}
    try:
        with record_ending(config.seal.run_dir, names):
            run(config, names)
    except SystemExit:  # the kernel sends SIGTERM when the launcher dies, which writes no ending then
        Ending.of_code(-signal.SIGTERM, config.seal.run_dir).write(config.seal.run_dir)
        raise


def run(config: DictConfig, names: dict[str, str]) -> None:
    """Train in a process of the cluster; names: gets that process's name by its id."""
    check_registrations()
    vllm_plugin.claim()
    cluster.prepare(config)
    import ray  # reads the environment that has been prepared

    from seal.training.runner import TaskRunner

    ray.init(**OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True))
    runner = TaskRunner.remote()
    names[runner._actor_id.hex()] = TRAINER
    ray.get(runner.run.remote(config))


if __name__ == "__main__":
    main()
