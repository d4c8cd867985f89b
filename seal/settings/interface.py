"""`seal.interface`: the learning interface Omega and how it evolves."""

from typing import Literal, Self

from pydantic import NonNegativeInt, model_validator

from seal.settings.base import Count, NonZeroShare, Settings

Kind = Literal["schema", "feedback", "guideline"]
TeacherName = Literal["off", "share", "retry"]
Entries = Literal["own", "other", "all"]


class EvolveSettings(Settings):
    """When cues turn on and off (docs/how-it-works.md). The thresholds are the paper's."""

    kinds: tuple[Kind, ...] = ("schema", "feedback", "guideline")
    """The kinds of cues in use."""
    left_out: tuple[str, ...] = ()
    """Cues of those kinds that are not in use, by name, or in one environment, as `tau2_telecom/caution`. A launch
    adds those for which the prompt mode has no words."""
    adaptive: tuple[Kind, ...] = ("guideline",)
    """The kinds that C_t switches; cues of the other kinds are on in every training observation. An empty
    list freezes Omega."""
    prevalence: NonZeroShare = 0.10
    """A label becomes a weakness at this share of the recent turns or above."""
    prevalence_of: Literal["turns", "failures"] = "turns"
    """The turns that a share is taken of: all with a label that counts, or those that failed (the release)."""
    mean_reward: float = 0.6
    """A label becomes a weakness only below this recent mean reward."""
    min_count: Count = 8
    """A label becomes a weakness only if it was seen this often in the window."""
    max_labels: NonNegativeInt = 3
    """The number of weaknesses whose cues are on at a time."""
    hysteresis: bool = True
    """`true` keeps a weakness down to 0.7 of the prevalence and up to 0.05 above the mean reward, until another one is
    clearly worse; `false` takes the thresholds as they are (the paper)."""


class InterfaceSettings(Settings):
    """The learning interface of training rollouts (docs/how-it-works.md)."""

    enabled: bool = True
    """`false` sends no Omega: training rollouts see the plain benchmark."""
    share: NonZeroShare = 1.0
    """The share of each prompt's rollouts that see Omega, rounded down to whole rollouts; the others see the plain
    benchmark."""
    teacher: TeacherName = "off"
    """The cued rollouts that teach the plain prompt: none (`off`, the paper), or those that pass, also replayed without
    cues. `share`: the share sees Omega; `retry`: if no plain rollout of the prompt passed, documents of tools."""
    entries: Entries = "own"
    """The tools whose documents a retry sees: those that the plain rollouts called with arguments that break their
    schema (`own`); or, as controls, as many other visible tools (`other`), or all (`all`)."""
    evolve: EvolveSettings = EvolveSettings()
    """When cues turn on and off."""

    @model_validator(mode="after")
    def _some_are_plain(self) -> Self:
        if self.entries != "own" and self.teacher != "retry":
            raise ValueError(
                f"entries={self.entries} chooses what teacher=retry shows: set that teacher, or entries=own"
            )
        if self.teacher != "off" and self.share == 1:
            raise ValueError(
                f"teacher={self.teacher} needs plain rollouts beside the cued ones: set seal.interface.share below 1"
            )
        return self
