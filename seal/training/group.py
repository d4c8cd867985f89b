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

    uid: the prompt. counts: it is usable and its group has at least MIN_GROUP usable
    trajectories. trains: it counts and is not silent.
    """

    uid: str
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
        groups.append(Group(uid, counts, counts and not record.silent))
    return groups


def by_prompt(groups: Sequence[Group]) -> dict[str, list[int]]:
    """The places of the trajectories that count, by the uid of their prompt."""
    found: dict[str, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        if group.counts:
            found[group.uid].append(place)
    return found
