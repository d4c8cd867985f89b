"""`seal`: what concerns the run as a whole, and the blocks of its parts."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, field_validator, model_validator

from seal.settings.base import Count, NonZeroShare, Settings
from seal.settings.data import DataSettings
from seal.settings.diagnosis import DiagnosisSettings
from seal.settings.interface import InterfaceSettings
from seal.settings.reward import RewardSettings
from seal.settings.reweighting import ReweightSettings
from seal.settings.rollout import RolloutSettings
from seal.settings.user import UserSettings


class CheckpointSettings(Settings):
    """Which checkpoints stay, as whole folders (docs/operate.md)."""

    keep_last: Count = 2
    """The number of newest checkpoints that stay."""
    keep_best: bool = True
    """`true` also keeps the one with the best validation average, which checkpoints/best.json names; a validation of
    other tasks starts anew."""


class SealSettings(Settings):
    """The run as a whole (docs/recipes.md, docs/operate.md)."""

    name: str
    """The name of the run; the recipe's file name if no recipe sets it."""
    enabled: bool = True
    """`false` is vanilla GRPO: no Omega, every weight 1; labels are still logged."""
    closed_loop: bool = True
    """`false` keeps Omega and rho as they start."""
    seed: int = 0
    """The seed of the run, which every random draw follows: each request is seeded by it, step, row, sample and
    message."""
    run_dir: str = "experiments/${trainer.experiment_name}"
    """The folder of the run's files; a relative path starts from the repository, or from a recipe that is elsewhere."""
    logprob_mean_tolerance: NonNegativeFloat | None = None
    """The mean log-prob difference between rollout engine and actor that a step may have; `null` only logs it."""
    logprob_check_every: Count = 1
    """The interval, in steps, at which the actor scores the rollouts before its update; in between, the engine's
    log-probs are PPO's old ones. More than 1 needs `seal.logprob_mean_tolerance`; with a teacher it counts as 1."""
    infra_limit: NonZeroShare = 0.2
    """The share of a step's trajectories that infrastructure failures may take before the run ends."""
    step_deadline_s: PositiveFloat = 7200
    """Seconds for a stage of the start or of a step, or for a validation, after which the run ends."""
    stop_grace_s: NonNegativeFloat = 600
    """Seconds that the trainer has to save a checkpoint after Ctrl-C or SIGTERM."""
    min_free_gb: NonNegativeFloat = 20
    """GiB that must be free for checkpoints, counting the run's own."""
    min_memory_gb: NonNegativeFloat = 12
    """GB of host memory per machine; `doctor` warns when there is less."""
    checkpoints: CheckpointSettings = CheckpointSettings()
    """Which checkpoints stay."""
    process_env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the training process and its workers."""
    diagnosis: DiagnosisSettings = DiagnosisSettings()
    """Which labels a run learns from."""
    interface: InterfaceSettings = InterfaceSettings()
    """The learning interface."""
    reweighting: ReweightSettings = ReweightSettings()
    """Weights on advantages, derived from labels."""
    reward: RewardSettings = RewardSettings()
    """The terminal reward."""
    rollout: RolloutSettings = RolloutSettings()
    """Budgets and deadlines of a trajectory."""
    user: UserSettings = UserSettings()
    """The language model that plays the user."""
    data: DataSettings = DataSettings()
    """Which tasks a run trains and validates on."""

    @model_validator(mode="after")
    def _engine_is_trusted_within_a_bound(self) -> Self:
        if self.logprob_check_every > 1 and self.logprob_mean_tolerance is None:
            raise ValueError(
                "seal.logprob_check_every above 1 needs a bound: set seal.logprob_mean_tolerance, or leave it at 1"
            )
        return self

    @model_validator(mode="after")
    def _teaches_in_its_own_loop(self) -> Self:
        if self.rollout.harness is not None and self.interface.teacher != "off":
            raise ValueError(
                "seal.interface.teacher repeats a rollout's messages in a plain episode, where no harness runs: "
                "set it to off, or seal.rollout.harness to null"
            )
        return self

    @field_validator("process_env", mode="before")
    @classmethod
    def _as_texts(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: str(item) if isinstance(item, int | float) else item for name, item in value.items()}

    @property
    def weighs(self) -> bool:
        """True if labels weigh advantages."""
        return self.enabled and self.reweighting.enabled

    @property
    def shows_omega(self) -> bool:
        """True if training prompts carry Omega."""
        return self.enabled and self.interface.enabled

    @property
    def teaches(self) -> bool:
        """True if rollouts with cues teach the plain prompt (`seal.interface.teacher`)."""
        return self.shows_omega and self.interface.teacher != "off"

    def checks_logprobs(self, step: int) -> bool:
        """Return whether the actor scores the rollouts of a step before its update: in step 1 and then at intervals.

        In every step with a teacher: the engine has not scored what is taught under the plain prompt.
        """
        return self.teaches or (step - 1) % self.logprob_check_every == 0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The settings of a composed configuration; SettingsError for the first wrong one."""
        return cls.read(config["seal"], "seal")
