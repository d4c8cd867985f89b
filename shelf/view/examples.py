"""Where to look first: a group with signal, and a task that a run learnt."""

import sqlite3
from typing import Any, NamedTuple

from seal.records.source import WHOLE
from seal.records.trajectory import TrajectoryRecord
from shelf.statistics.log import MET, Log
from shelf.view.query import Filters, groups
from shelf.view.report.run import by_task

CLEAREST = "infra > 0, abs(2.0 * passed / size - 1), turns BETWEEN 2 AND 4 DESC, kinds, step DESC, task"
"""Nothing lost, half passed, few turns but several, failures that agree; of equal ones the newest."""


class Learnt(NamedTuple):
    """A task before and after: one rollout of each, and the turn, from 0, that `before` failed first."""

    before: TrajectoryRecord
    after: TrajectoryRecord
    turn: int


def first_group(db: sqlite3.Connection) -> dict[str, Any] | None:
    """The training group that shows best what is learnt from a group; None if none has signal."""
    return next(iter(groups(db, Filters(), 0, 1, True, CLEAREST)["rows"]), None)


def learnt(log: Log) -> Learnt | None:
    """A task that failed in every sample of the first validation and passed in every one of the last; None without.

    Tasks of several turns come before others, whole ones before prefixes, then those of few sampled tokens.
    """
    if len(log.steps) < 2:
        return None
    first, last = (by_task(log.at(step)) for step in (log.steps[0], log.steps[-1]))
    found = []
    for task, failed in first.items():
        if task in last and not any(line.passed for line in failed) and all(line.passed for line in last[task]):
            before, after = (min(lines, key=lambda line: line.tokens) for lines in (failed, last[task]))
            missed = (turn for turn, label in enumerate(before.labels) if label not in MET)
            found += [Learnt(before, after, turn) for turn in list(missed)[:1]]
    return min(found, key=_preference, default=None)


def _preference(found: Learnt) -> tuple[Any, ...]:
    before, after, _ = found
    return before.turns < 2, before.prefix != WHOLE, before.tokens + after.tokens, before.task_id
