"""`seal.sampling`: which prompts a step draws."""

from typing import Literal

from seal.settings.base import NonNegative, Positive, Settings, Share


class SamplingSettings(Settings):
    """Which of the selected tasks a step plays (docs/sampling.md)."""

    mode: Literal["uniform", "gradient"] = "uniform"
    """`uniform`: all tasks in a shuffled order. `gradient`: more often those whose rollouts are likely to differ."""
    half_life: Positive = 16
    """Steps after which an outcome counts half: the policy changes."""
    prior: Positive = 1
    """How many rollouts the mean of a task's data source weighs against the task's own."""
    sharpness: NonNegative = 2
    """The power of the expected variance that a task's share is proportional to; 0 draws uniformly."""
    explore: Share = 0.1
    """The share of the draws that is uniform over all tasks."""
    floor: Share = 0.5
    """The least share of the draws of each data source, as a share of its part of the tasks."""
