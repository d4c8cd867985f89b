"""What the interface gives during training: rollouts that see Omega against rollouts of the same prompt that do not."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from seal.records.mean import Mean
from seal.records.trajectory import TrajectoryRecord


@dataclass(frozen=True)
class Lift:
    """The mean reward with Omega less that without, averaged over prompts.

    prompts: how many have rollouts of both kinds. mean: in units of the reward. standard_error: over prompts,
    None for a single one.
    """

    prompts: int
    mean: float
    standard_error: float | None

    @classmethod
    def of(cls, prompts: Iterable[Sequence[TrajectoryRecord]]) -> Self | None:
        """The lift over some prompts, each with its usable rollouts; None if no prompt has both kinds."""
        differences = []
        for rollouts in prompts:
            with_omega = [each.score for each in rollouts if each.omega_version is not None]
            without = [each.score for each in rollouts if each.omega_version is None]
            if with_omega and without:
                differences.append(statistics.fmean(with_omega) - statistics.fmean(without))
        mean = Mean.of(differences)
        if mean is None:
            return None
        return cls(len(differences), *mean)
