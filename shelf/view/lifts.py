"""The effect of the interface on the policy: tasks with and without it, paired by task and validation."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from seal.records.folder import RunFolder
from seal.records.trajectory import TrajectoryRecord
from seal.system.jsonl import step_files
from shelf.statistics.comparison import means
from shelf.statistics.intervals import PairedDifference, paired_difference
from shelf.statistics.log import Log, read_log


class Lift(NamedTuple):
    """The interface's lift: pass rates without it (a) and with it (b), over all validations and at each with a pair.

    at: by step, ascending, with at least one step.
    """

    overall: PairedDifference
    at: Mapping[int, PairedDifference]


def withdrawal_log(folder: RunFolder) -> Log:
    """Return the rollouts that a run's validations played for the withdrawal of cues; empty if there are none."""
    return Log.joined(read_log(path) for _step, path in step_files(folder.withdrawals))


def lift(records: Sequence[TrajectoryRecord]) -> Lift | None:
    """The lift of the whole interface; None if no task was played both with and without it.

    Trajectories that infrastructure failed are left out, and so are pairs that lose a side in this way.
    """
    usable = [record for record in records if record.infra is None]
    scenarios = {_paired(record): record.scenario for record in usable}
    without, shown = (
        means((_paired(record), record.passed) for record in usable if record.withdrawal == side)
        for side in ("hidden", "shown")
    )

    def over(steps: Sequence[int]) -> PairedDifference:
        a, b = ({key: value for key, value in side.items() if key[0] in steps} for side in (without, shown))
        return paired_difference(a, b, scenarios, dict.fromkeys(scenarios, "all"))

    steps = sorted({step for step, *_ in shown.keys() & without.keys()})
    return Lift(over(steps), {step: over([step]) for step in steps}) if steps else None


def lift_values(folder: RunFolder) -> dict[str, Any] | None:
    """The lift as JSON values, and how many lines of the log cannot be used; None if the run logged no withdrawal.

    overall, and steps (at each validation): pass rates with and without the interface, and their difference with a 95 %
    interval. Without a pair, overall is None.
    """
    log = withdrawal_log(folder)
    if not (log.lines or log.bad):
        return None
    found = lift(log.lines)
    steps = [{"step": step, **_figures(paired)} for step, paired in found.at.items()] if found else []
    return {"overall": _figures(found.overall) if found else None, "steps": steps, "bad": len(log.bad)}


def _figures(paired: PairedDifference) -> dict[str, Any]:
    rates = {"with": paired.mean_b, "without": paired.mean_a, "lift": paired.difference}
    return {"pairs": paired.pairs, **rates, "low": paired.low, "high": paired.high}


def _paired(record: TrajectoryRecord) -> tuple[int, str, str]:
    """What a record with the interface has in common with those without it."""
    return record.step, record.data_source, record.task_id
