"""The training process: `python -m seal.training.main CONFIG.yaml`, started by the launcher.

Reads a resolved recipe, checks that every extension of ours is registered with
verl, and hands over to verl's own entry.
"""

from __future__ import annotations

import argparse
import logging
import sys

from omegaconf import OmegaConf


def check_registrations() -> None:
    """Import the plugins again, loudly: verl swallows their import errors."""
    from verl.plugin.platform.platform_manager import PlatformRegistry
    from verl.trainer.ppo.v1 import get_trainer_cls

    import seal.training.plugin  # noqa: F401

    if PlatformRegistry.get("cpu") is None or get_trainer_cls("seal") is None:
        raise RuntimeError("SEAL's platform and trainer did not register with verl: run `bash install.sh` again.")


def main(argv: list[str] | None = None) -> int:
    """Run training; returns the process's exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="resolved recipe, as the launcher writes it")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    config = OmegaConf.load(arguments.config)

    check_registrations()
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config
    from verl.utils.device import auto_set_device

    auto_set_device(config)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    run_ppo(config, task_runner_class=TaskRunnerV1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
