"""The parts of verl that a recipe names: those that SEAL's hooks are made for, and what can be combined with them."""

from omegaconf import DictConfig, OmegaConf

from seal.rollout.row import whole_part
from seal.settings import SealSettings
from seal.system.errors import LaunchError


def check_engines(config: DictConfig) -> None:
    """Refuse parts that SEAL's hooks are not made for: they would run, but differently from what the recipe says."""
    key, only = "actor_rollout_ref.rollout.name", "vllm"
    found = OmegaConf.select(config, key)
    if found != only:
        raise LaunchError(f"{key}={found}: rollouts and their checks only support vLLM, so it must be {only}.")
    mode, modes = config.trainer.v1.trainer_mode, ("seal", "seal_async")
    if mode not in modes:
        raise LaunchError(f"trainer.v1.trainer_mode={mode} is not a trainer of SEAL: choose one of {', '.join(modes)}.")
    _share(config)


def _share(config: DictConfig) -> None:
    """Refuse a share of rollouts that is less than one rollout."""
    share, samples = SealSettings.of(config).interface.share, config.actor_rollout_ref.rollout.n
    if whole_part(share, samples) < 1:
        raise LaunchError(
            f"seal.interface.share={share:g} leaves no rollout of {samples} (actor_rollout_ref.rollout.n) that sees "
            f"Omega: raise it to {1 / samples:g}, or set seal.interface.enabled=false."
        )
