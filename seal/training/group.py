"""Which trajectories of a step count: GRPO groups without the lost and the excluded ones."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from seal.records.trajectory import TrajectoryRecord

MIN_GROUP = 2
"""Usable trajectories that a group needs; a single one has no spread, and its advantage would be its raw reward."""


@dataclass(frozen=True)
class Group:
    """One trajectory's standing in its group.

    uid: the prompt. apart: infrastructure lost this trajectory, or a budget cut it
    and the recipe excludes it. counts: it is usable and its group has at least
    MIN_GROUP usable trajectories. trains: it counts and is not silent.
    """

    uid: str
    apart: bool
    counts: bool
    trains: bool


def mark_groups(uids: Sequence[str], records: Sequence[TrajectoryRecord]) -> list[Group]:
    """Return the standing of each trajectory, in their order."""
    usable: dict[str, int] = defaultdict(int)
    for uid, record in zip(uids, records, strict=True):
        usable[uid] += record.usable
    groups = []
    for uid, record in zip(uids, records, strict=True):
        counts = record.usable and usable[uid] >= MIN_GROUP
        groups.append(Group(uid, not record.usable, counts, counts and not record.silent))
    return groups


def numbered(groups: Sequence[Group]) -> list[int]:
    """The number of each trajectory's group, counted from 0 in the order of their first trajectories."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(group.uid, len(numbers)) for group in groups]


def groups_with_spread(groups: Sequence[Group], records: Sequence[TrajectoryRecord]) -> int:
    """Count the groups whose trajectories differ in reward: only they give a gradient."""
    prompts = by_prompt(groups, records).values()
    return sum(len({record.score for record in rollouts}) > 1 for rollouts in prompts)


def by_prompt(groups: Sequence[Group], records: Sequence[TrajectoryRecord]) -> dict[str, list[TrajectoryRecord]]:
    """The trajectories that count, by the uid of their prompt."""
    found: dict[str, list[TrajectoryRecord]] = defaultdict(list)
    for group, record in zip(groups, records, strict=True):
        if group.counts:
            found[group.uid].append(record)
    return found


def groups_dropped(groups: Sequence[Group]) -> int:
    """Count the groups without a trajectory that counts."""
    return len({group.uid for group in groups}) - len({group.uid for group in groups if group.counts})
