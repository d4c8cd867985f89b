"""`seal.sampling`: which prompts a step draws, and how many rollouts each gets."""

from typing import Annotated, Literal

from annotated_types import Ge

from seal.settings.base import Count, NonNegative, NonZeroShare, Positive, Settings, Share


class PilotSettings(Settings):
    """Some rollouts of a prompt first, the rest only where those differ (docs/sampling.md)."""

    samples: Annotated[int, Ge(2)] | None = None
    """Rollouts of a prompt that decide whether it gets the rest; `null` plays every prompt in full."""
    keep: NonZeroShare = 0.25
    """The probability with which a prompt whose pilots all have the same reward still gets the rest."""
    waves: Count = 2
    """How often a step pilots prompts; the rest of its rollouts then goes to prompts that are played in full."""


class SamplingSettings(Settings):
    """Which of the selected tasks a step plays (docs/sampling.md)."""

    mode: Literal["uniform", "gradient"] = "uniform"
    """`uniform`: all tasks in a shuffled order. `gradient`: more often those whose rollouts are likely to differ."""
    half_life: Positive = 16
    """Steps after which an outcome counts half: the policy changes."""
    prior: Positive = 1
    """The weight of the mean of a task's data source, in rollouts of the task."""
    sharpness: NonNegative = 2
    """A task's share is proportional to its expected variance raised to this power; 0 draws uniformly."""
    explore: Share = 0.1
    """The share of the draws that is uniform over all tasks."""
    floor: Share = 0.5
    """The least share of the draws of each data source, as a share of its part of the tasks."""
    pilot: PilotSettings = PilotSettings()
    """Which prompts get all their rollouts."""
