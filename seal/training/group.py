"""Which trajectories of a step count: GRPO groups without failures of infrastructure and excluded trajectories."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from seal.records.trajectory import TrajectoryRecord

MIN_GROUP = 2
"""Below this a group has no spread to normalise by, and verl would use the raw reward as advantage."""


@dataclass(frozen=True)
class Group:
    """One trajectory's standing in its group.

    uid: the prompt's identity; apart: infrastructure failed this trajectory, or it
    was cut and the recipe excludes it; counts: it is part of a group that can be
    normalised.
    """

    uid: str
    apart: bool
    counts: bool


def mark_groups(uids: Sequence[str], records: Sequence[TrajectoryRecord]) -> list[Group]:
    """The standing of each trajectory; a trajectory without group of at least two survivors does not count."""
    survivors: dict[str, int] = defaultdict(int)
    for uid, record in zip(uids, records, strict=True):
        survivors[uid] += record.usable
    return [
        Group(uid, not record.usable, record.usable and survivors[uid] >= MIN_GROUP)
        for uid, record in zip(uids, records, strict=True)
    ]


def groups_with_spread(groups: Sequence[Group], records: Sequence[TrajectoryRecord]) -> int:
    """How many groups have trajectories of different reward, hence a gradient."""
    scores: dict[str, set[float]] = defaultdict(set)
    for group, record in zip(groups, records, strict=True):
        if group.counts:
            scores[group.uid].add(record.score)
    return sum(len(values) > 1 for values in scores.values())


def groups_dropped(groups: Sequence[Group]) -> int:
    """How many groups have no trajectory that counts."""
    return len({group.uid for group in groups}) - len({group.uid for group in groups if group.counts})
