"""What a cue gives the policy: the tasks of a withdrawal with and without it, paired by task and validation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, NamedTuple

from seal.records.folder import RunFolder
from seal.records.trajectory import EVERY_CUE, NO_CUE, TrajectoryRecord
from seal.records.validation import Log, read_log
from seal.statistics.intervals import PairedDifference, paired_difference
from seal.system.jsonl import step_files

Played = tuple[int, str, int]
"""Step, task and prefix of what was played."""


@dataclass(frozen=True)
class Lift:
    """A cue's lift: pass rates without (a) and with it (b), over all validations or at one of them."""

    cue: str
    """EVERY_CUE for the whole interface against the plain one."""
    steps: tuple[int, ...]
    """The validations that have a pair, ascending, at least one."""
    shown: Mapping[Played, float]
    """Pass rates with the cue."""
    withdrawn: Mapping[Played, float]
    """Pass rates without the cue."""
    scenarios: Mapping[Played, int]

    @cached_property
    def overall(self) -> PairedDifference:
        """Over all validations."""
        return self._over(self.steps)

    def at(self, step: int) -> PairedDifference:
        """At one validation; ValueError for a step that is not one of `steps`."""
        return self._over((step,))

    def _over(self, chosen: Sequence[int]) -> PairedDifference:
        a, b = (
            {key: value for key, value in side.items() if key[0] in chosen} for side in (self.withdrawn, self.shown)
        )
        return paired_difference(a, b, self.scenarios, dict.fromkeys(self.scenarios, "all"))


class Progress(NamedTuple):
    """Pass rates at the first validation (a) and at the last (b), and the steps of both."""

    first_step: int
    last_step: int
    change: PairedDifference


def withdrawal_log(folder: RunFolder) -> Log:
    """What the validations of a run played for the withdrawal of cues; empty without any."""
    return Log.joined(read_log(path) for _step, path in step_files(folder.withdrawals))


def lifts(records: Sequence[TrajectoryRecord]) -> tuple[Lift, ...]:
    """The lift of each cue that was withdrawn, the whole interface first, then in order of first withdrawal.

    Trajectories that infrastructure failed are left out, and pairs that lose a side by it.
    """
    usable = _usable(records)
    cues = dict.fromkeys(
        record.withdrawn
        for record in sorted(usable, key=lambda record: record.step)
        if record.withdrawn not in ("", NO_CUE)
    )
    scenarios = {(record.step, *record.task): record.scenario for record in usable}
    shown = _scores(usable, "")
    made = []
    for cue in sorted(cues, key=lambda cue: cue != EVERY_CUE):
        withdrawn = _scores(usable, cue)
        if steps := tuple(sorted({step for step, *_ in shown.keys() & withdrawn.keys()})):
            made.append(Lift(cue, steps, shown, withdrawn, scenarios))
    return tuple(made)


def progress(records: Sequence[TrajectoryRecord], withdrawn: str) -> Progress | None:
    """What the policy has learnt on the tasks of a withdrawal, paired by task; None before the second validation.

    withdrawn: "" for the tasks as they are played under Omega, EVERY_CUE for those in the plain interface.
    """
    scores = _scores(_usable(records), withdrawn)
    steps = sorted({step for step, *_ in scores})
    if len(steps) < 2:
        return None
    ends = ({key[1:]: value for key, value in scores.items() if key[0] == step} for step in (steps[0], steps[-1]))
    scenarios = {record.task: record.scenario for record in records}
    change = paired_difference(*ends, scenarios, dict.fromkeys(scenarios, "all"))
    return Progress(steps[0], steps[-1], change)


def lift_rows(log: Log) -> dict[str, Any]:
    """The lifts as JSON values, the whole interface as cue null, and how many lines of the log cannot be used.

    rows: pass rates with and without a cue, their difference with its 95 % interval,
    over all validations and at each (steps).
    """
    rows = [
        {
            "cue": None if lift.cue == EVERY_CUE else lift.cue,
            "overall": _figures(lift.overall),
            "steps": [{"step": step, **_figures(lift.at(step))} for step in lift.steps],
        }
        for lift in lifts(log.lines)
    ]
    return {"rows": rows, "bad": len(log.bad)}


def _figures(paired: PairedDifference) -> dict[str, Any]:
    rates = {"with": paired.mean_b, "without": paired.mean_a, "lift": paired.difference}
    return {"pairs": paired.pairs, **rates, "low": paired.low, "high": paired.high}


def _usable(records: Sequence[TrajectoryRecord]) -> list[TrajectoryRecord]:
    return [record for record in records if record.withdrawn is not None and record.infra is None]


def _scores(records: Sequence[TrajectoryRecord], withdrawn: str) -> dict[Played, float]:
    """The share of samples that passed, by step, task and prefix."""
    passed: dict[Played, list[bool]] = {}
    for record in records:
        if record.withdrawn == withdrawn:
            passed.setdefault((record.step, *record.task), []).append(record.passed)
    return {key: fmean(outcomes) for key, outcomes in passed.items()}
