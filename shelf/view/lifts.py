"""The effect of a cue on the policy: the tasks of a withdrawal with and without it, paired by task and validation."""

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from seal.records.folder import RunFolder
from seal.records.trajectory import EVERY_CUE, TrajectoryRecord
from seal.system.jsonl import step_files
from shelf.statistics.intervals import PairedDifference, paired_difference
from shelf.statistics.log import Log, read_log

NO_CUE = "-"
"""The value of `withdrawn`, in logs of earlier versions, for a rollout that had no cue to go without."""

Played = tuple[int, str, int]
"""Step, task and prefix of what was played."""


class Lift(NamedTuple):
    """A cue's lift: pass rates without (a) and with it (b), over all validations and at each that has a pair.

    cue: EVERY_CUE for the whole interface against the plain one; a name in logs of earlier versions.
    at: by step, ascending, at least one.
    """

    cue: str
    overall: PairedDifference
    at: Mapping[int, PairedDifference]


def withdrawal_log(folder: RunFolder) -> Log:
    """Return the rollouts that a run's validations played for the withdrawal of cues; empty without any."""
    return Log.joined(read_log(path) for _step, path in step_files(folder.withdrawals))


def lifts(records: Sequence[TrajectoryRecord]) -> tuple[Lift, ...]:
    """The lift of each cue that was withdrawn, the whole interface first, then in order of first withdrawal.

    Trajectories that infrastructure failed are left out, and pairs that lose a side by it.
    """
    usable = [record for record in records if record.withdrawn is not None and record.infra is None]
    ordered = sorted(usable, key=lambda record: record.step)
    cues = dict.fromkeys(record.withdrawn for record in ordered if record.withdrawn not in ("", NO_CUE))
    scenarios = {(record.step, *record.task): record.scenario for record in usable}
    shown = _scores(usable, "")

    def over(withdrawn: Mapping[Played, float], steps: Collection[int]) -> PairedDifference:
        a, b = ({key: value for key, value in side.items() if key[0] in steps} for side in (withdrawn, shown))
        return paired_difference(a, b, scenarios, dict.fromkeys(scenarios, "all"))

    made = []
    for cue in sorted(cues, key=lambda cue: cue != EVERY_CUE):
        withdrawn = _scores(usable, cue)
        if steps := sorted({step for step, *_ in shown.keys() & withdrawn.keys()}):
            made.append(Lift(cue, over(withdrawn, steps), {step: over(withdrawn, [step]) for step in steps}))
    return tuple(made)


def lift_rows(log: Log) -> dict[str, Any]:
    """The lifts as JSON values, the whole interface as cue null, and how many lines of the log cannot be used.

    rows: pass rates with and without a cue, their difference with its 95 % interval,
    over all validations and at each (steps).
    """
    rows = [
        {
            "cue": None if lift.cue == EVERY_CUE else lift.cue,
            "overall": _figures(lift.overall),
            "steps": [{"step": step, **_figures(paired)} for step, paired in lift.at.items()],
        }
        for lift in lifts(log.lines)
    ]
    return {"rows": rows, "bad": len(log.bad)}


def _figures(paired: PairedDifference) -> dict[str, Any]:
    rates = {"with": paired.mean_b, "without": paired.mean_a, "lift": paired.difference}
    return {"pairs": paired.pairs, **rates, "low": paired.low, "high": paired.high}


def _scores(records: Sequence[TrajectoryRecord], withdrawn: str) -> dict[Played, float]:
    """The share of samples that passed, by step, task and prefix."""
    passed: dict[Played, list[bool]] = {}
    for record in records:
        if record.withdrawn == withdrawn:
            passed.setdefault((record.step, *record.task), []).append(record.passed)
    return {key: fmean(outcomes) for key, outcomes in passed.items()}
