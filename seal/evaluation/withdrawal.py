"""What a cue gives the policy: the tasks of a withdrawal with and without it, paired by task and validation."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from seal.evaluation.statistics import PairedDifference, paired_difference
from seal.records.trajectory import EVERY_CUE, TrajectoryRecord


@dataclass(frozen=True)
class Lift:
    """A cue's lift: pass rates without (a) and with it (b), over all validations, the first and the last that have it.

    cue: EVERY_CUE for the whole interface against the plain one.
    """

    cue: str
    overall: PairedDifference
    first_step: int
    first: PairedDifference
    last_step: int
    last: PairedDifference


def lifts(records: Sequence[TrajectoryRecord]) -> tuple[Lift, ...]:
    """The lift of each cue that was withdrawn, the whole interface first, then in order of first withdrawal.

    Trajectories that infrastructure failed are left out, and pairs that lose a side by it.
    """
    usable = [record for record in records if record.withdrawn is not None and record.infra is None]
    cues = dict.fromkeys(
        record.withdrawn for record in sorted(usable, key=lambda record: record.step) if record.withdrawn
    )
    ordered = sorted(cues, key=lambda cue: cue != EVERY_CUE)
    return tuple(lift for cue in ordered if (lift := _lift(cue, usable)) is not None)


def _lift(cue: str, records: Sequence[TrajectoryRecord]) -> Lift | None:
    shown, withdrawn = (_scores(records, name) for name in ("", cue))
    steps = sorted({step for step, *_ in shown.keys() & withdrawn.keys()})
    if not steps:
        return None
    scenarios = {(record.step, *record.task): record.scenario for record in records}

    def over(chosen: Sequence[int]) -> PairedDifference:
        a, b = ({key: value for key, value in side.items() if key[0] in chosen} for side in (withdrawn, shown))
        return paired_difference(a, b, scenarios, dict.fromkeys(scenarios, "all"))

    return Lift(cue, over(steps), steps[0], over(steps[:1]), steps[-1], over(steps[-1:]))


def _scores(records: Sequence[TrajectoryRecord], withdrawn: str) -> dict[tuple[int, str, int], float]:
    """The share of samples that passed, by step, task and prefix."""
    found: dict[tuple[int, str, int], list[bool]] = {}
    for record in records:
        if record.withdrawn == withdrawn:
            found.setdefault((record.step, *record.task), []).append(record.passed)
    return {key: fmean(passed) for key, passed in found.items()}
