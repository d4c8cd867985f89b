"""The parts of verl that a recipe names: those that SEAL's hooks are made for, and what can be combined with them."""

from omegaconf import DictConfig, OmegaConf

from seal.errors import LaunchError
from seal.pilot import require_rest
from seal.rollout.row import whole_part
from seal.settings import SealSettings


def check_engines(config: DictConfig) -> None:
    """Refuse parts that SEAL's hooks are not made for: they would run, but differently from what the recipe says."""
    key, only = "actor_rollout_ref.rollout.name", "vllm"
    found = OmegaConf.select(config, key)
    if found != only:
        raise LaunchError(f"{key}={found}: rollouts and their checks only support vLLM, so it must be {only}.")
    mode, modes = config.trainer.v1.trainer_mode, ("seal", "seal_async")
    if mode not in modes:
        raise LaunchError(f"trainer.v1.trainer_mode={mode} is not a trainer of SEAL: choose one of {', '.join(modes)}.")
    chosen = SealSettings.of(config).sampling.mode == "gradient"
    if chosen and mode != "seal":
        raise LaunchError(
            "seal.sampling.mode=gradient draws all prompts of a step at once: set trainer.v1.trainer_mode=seal, or "
            "seal.sampling.mode=uniform."
        )
    if chosen and config.trainer.v1.sampler.sync_refill_failed_groups:
        raise LaunchError(
            "seal.sampling.mode=gradient draws all prompts of a step at once: set "
            "trainer.v1.sampler.sync_refill_failed_groups=false, or seal.sampling.mode=uniform."
        )
    _pilots(config)
    _share(config)


def _pilots(config: DictConfig) -> None:
    """Refuse what cannot be combined with prompts that get their rollouts in two parts."""
    pilot, off = SealSettings.of(config).sampling.pilot, "or seal.sampling.pilot.samples=null"
    if pilot.samples is None:
        return
    key = "seal.sampling.pilot.samples"
    try:
        require_rest(pilot, config.actor_rollout_ref.rollout.n)
    except ValueError as error:
        raise LaunchError(f"{key}: {error} (actor_rollout_ref.rollout.n): lower it, {off}.") from error
    if config.trainer.v1.trainer_mode != "seal":
        raise LaunchError(
            f"{key} needs a step whose rollouts end before it is trained, and trainer.v1.trainer_mode="
            f"{config.trainer.v1.trainer_mode} does not wait for them: set it to seal, {off}."
        )
    for switch, instead in (
        ("trainer.v1.sampler.sync_refill_failed_groups", "would replace prompts by others in the middle of a step"),
        ("skip.rollout_tq.enable", "would send stored rollouts in place of those that the pilots decide on"),
    ):
        if OmegaConf.select(config, switch):
            raise LaunchError(f"{key}: {switch} {instead}: set it to false, {off}.")


def _share(config: DictConfig) -> None:
    """Refuse a share of rollouts that is less than one rollout."""
    share, samples = SealSettings.of(config).interface.share, config.actor_rollout_ref.rollout.n
    if whole_part(share, samples) < 1:
        raise LaunchError(
            f"seal.interface.share={share:g} leaves no rollout of {samples} (actor_rollout_ref.rollout.n) that sees "
            f"Omega: raise it to {1 / samples:g}, or set seal.interface.enabled=false."
        )
