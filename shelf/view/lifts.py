"""What each cue gives the policy, from the tasks of a withdrawal (docs/interface.md), as JSON values."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from seal.records.folder import RunFolder
from seal.records.trajectory import EVERY_CUE, TrajectoryRecord
from seal.system.jsonl import step_files
from shelf.view.lines import index_line

if TYPE_CHECKING:
    from seal.statistics.intervals import PairedDifference
    from shelf.view.withdrawal import Lift

Seen = tuple[tuple[int, int, int], ...]
"""Step, size and time of each file."""


class Lifts:
    """The lifts of a run's cues, computed again when a log of its withdrawals has changed."""

    def __init__(self, folder: RunFolder):
        self._folder = folder.withdrawals
        self._read: tuple[Seen, dict[str, Any] | None] = ((), None)

    @property
    def seen(self) -> Seen:
        """What there is to be read now."""
        found = []
        for step, path in step_files(self._folder):
            try:
                stat = path.stat()
            except FileNotFoundError:  # a resumed run dropped it
                continue
            found.append((step, stat.st_size, stat.st_mtime_ns))
        return tuple(found)

    def get(self) -> dict[str, Any] | None:
        """The lifts, the whole interface first (cue: null), and how many lines cannot be used; None without logs.

        rows: pass rates with and without a cue, their difference with its 95 % interval,
        over all validations and at each (steps).
        """
        if (seen := self.seen) != self._read[0]:
            self._read = seen, self._computed()
        return self._read[1]

    def _computed(self) -> dict[str, Any] | None:
        from shelf.view.withdrawal import lifts  # loads scipy, which no other page waits for

        files = step_files(self._folder)
        records, bad = [], 0
        for step, path in files:
            found, unusable = _read(step, path)
            records += found
            bad += unusable
        return {"rows": [_row(lift) for lift in lifts(records)], "bad": bad} if files else None


def _read(step: int, path: Path) -> tuple[list[TrajectoryRecord], int]:
    """The records of a log, without their dialogues, and how many lines hold none."""
    # Without an active cue a task is played twice under Omega: the first counts, as in the report.
    records: dict[tuple[Any, ...], TrajectoryRecord] = {}
    bad = 0
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    for raw in filter(bytes.strip, data.splitlines()):
        try:
            record = index_line(raw, step).record
        except ValueError:
            bad += 1
        else:
            records.setdefault((record.step, *record.task, record.withdrawn, record.sample), record)
    return list(records.values()), bad


def _row(lift: "Lift") -> dict[str, Any]:
    return {
        "cue": None if lift.cue == EVERY_CUE else lift.cue,
        "overall": _figures(lift.overall),
        "steps": [{"step": step, **_figures(lift.at(step))} for step in lift.steps],
    }


def _figures(found: "PairedDifference") -> dict[str, Any]:
    return {
        "pairs": found.pairs,
        "with": found.mean_b,
        "without": found.mean_a,
        "lift": found.difference,
        "low": found.low,
        "high": found.high,
    }
