"""`seal.interface`: the learning interface Omega and how it evolves."""

from typing import Annotated, Literal, Self

from annotated_types import Ge
from pydantic import model_validator

from seal.settings.base import Amount, Count, NonNegative, NonZeroShare, Settings

Kind = Literal["schema", "feedback", "guideline"]
KINDS: tuple[Kind, ...] = ("schema", "feedback", "guideline")


class EvolveSettings(Settings):
    """When cues turn on and off (docs/interface.md). Needs off_prevalence <= prevalence and
    mean_reward <= off_mean_reward. The thresholds are the paper's, except those that end a weakness.
    """

    enabled: bool = True
    """`false` freezes Omega at its start."""
    kinds: tuple[Kind, ...] = KINDS
    """The kinds of cues in use."""
    without: tuple[str, ...] = ()
    """Single cues that are not used."""
    adaptive: tuple[Kind, ...] = ("guideline",)
    """The kinds that C_t switches; cues of the other kinds are on in every training observation."""
    prevalence: NonZeroShare = 0.10
    """A label becomes a weakness at this share of the recent turns or above."""
    mean_reward: float = 0.6
    """A label becomes a weakness only below this recent mean reward."""
    min_count: Count = 8
    """A label becomes a weakness only if it was seen this often in the window."""
    max_labels: Amount = 3
    """The number of weaknesses whose cues are on at a time."""
    off_prevalence: NonZeroShare = 0.07
    """A weakness ends below this share of the recent turns."""
    off_mean_reward: float = 0.65
    """A weakness ends at this recent mean reward."""
    stickiness: Annotated[float, Ge(1)] = 1.25
    """The factor by which a newcomer's score must exceed that of the weakness whose place it takes."""
    margin: NonNegative = 2.0
    """Standard errors by which it must exceed that factor: more evidence is needed when sightings are few."""
    per_category: bool = False
    """`true` judges each task category by its own figures and gives it its own cues."""
    per_environment: bool = True
    """`true` judges each environment of a run with several by its own figures and gives it its own cues."""
    initial: tuple[str, ...] = ()
    """Cues that are on at the start and evolve like all others."""
    always: tuple[str, ...] = ()
    """Cues that stay on throughout the run."""

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> Self:
        if self.off_prevalence > self.prevalence:
            raise ValueError("off_prevalence must not be above prevalence; lower off_prevalence")
        if self.off_mean_reward < self.mean_reward:
            raise ValueError("off_mean_reward must not be below mean_reward; raise off_mean_reward")
        return self


class InterfaceSettings(Settings):
    """The learning interface of training rollouts (docs/interface.md)."""

    enabled: bool = True
    """`false` sends no Omega: training rollouts see the plain benchmark."""
    share: NonZeroShare = 1.0
    """The share of each prompt's rollouts that see Omega, rounded down to whole rollouts; the others see the plain
    benchmark."""
    initial: str | None = None
    """The `interface.json` of an exported run, whose Omega this run starts with."""
    evolve: EvolveSettings = EvolveSettings()
    """When cues turn on and off."""
