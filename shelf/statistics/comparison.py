"""Paired differences between runs, groups of seeds, or two steps of one run."""

from collections.abc import Collection, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from seal.records.source import categories_to_average, data_source, order_categories
from seal.records.trajectory import TrajectoryRecord
from seal.system.grouping import Key, grouped
from shelf.statistics.intervals import PairedDifference, paired_difference
from shelf.statistics.log import has_verdict, judged_turns
from shelf.statistics.summary import AVERAGE, Task


class Side(NamedTuple):
    """One side of a comparison: its name and the lines of each run (or seed) in it."""

    name: str
    runs: tuple[tuple[TrajectoryRecord, ...], ...]

    @property
    def lines(self) -> tuple[TrajectoryRecord, ...]:
        """The lines of all its runs."""
        return tuple(line for run in self.runs for line in run)


class Comparison(NamedTuple):
    """The difference b - a in one category or over all categories; unpaired counts tasks that only one side has."""

    a: str
    b: str
    name: str
    prefix: int
    pass_rate: PairedDifference
    turn_rate: PairedDifference | None
    unpaired: int

    @property
    def is_average(self) -> bool:
        """True for the row over all categories."""
        return self.name.startswith(AVERAGE)


def compare(a: Side, b: Side, without: Collection[Task] = ()) -> tuple[Comparison, ...]:
    """Compare two sides on the tasks that both have, by category and on average; ValueError if they share no task.

    without: tasks to leave out; of all that they share, that leaves no row.
    """
    sides = [[line for line in side.lines if has_verdict(line) and line.task not in without] for side in (a, b)]
    shared = set.intersection(*({(*_named(line), line.prefix) for line in lines} for lines in sides))
    if not shared and not without:
        raise ValueError(f"{a.name} and {b.name} share no task with a verdict: compare runs over the same tasks.")
    rows = []
    for prefix in sorted({prefix for *_, prefix in shared}):
        at_prefix = [[line for line in lines if line.prefix == prefix] for lines in sides]
        categories = {category for category, _, of in shared if of == prefix}
        present = {category: (category,) for category in order_categories(categories)}
        every = categories_to_average(categories)
        for name, own in (present | {AVERAGE: every}).items():
            kept = [[line for line in lines if line.category in own] for lines in at_prefix]
            rows.append(compare_lines(a.name, b.name, data_source(name, prefix), prefix, kept))
    return tuple(rows)


def compare_lines(a: str, b: str, name: str, prefix: int, sides: Sequence[Sequence[TrajectoryRecord]]) -> Comparison:
    """Compare the lines of two sides, regardless of category; ValueError if they share no task."""
    lines = [line for side in sides for line in side]
    scenarios = {_named(line): line.scenario for line in lines}
    categories = {_named(line): line.category for line in lines}
    turns = means((_named(line), judged_turns(line)) for line in lines)  # a simulated user's differ by rollout
    passed = [means((_named(line), float(line.passed)) for line in side) for side in sides]
    met = [means((_named(x), x.turns_passed / of) for x in side if (of := judged_turns(x))) for side in sides]
    with_turns = set(met[0]) & set(met[1])
    return Comparison(
        a=a,
        b=b,
        name=name,
        prefix=prefix,
        pass_rate=paired_difference(*passed, scenarios, categories),
        turn_rate=paired_difference(*met, scenarios, categories, turns) if with_turns else None,
        unpaired=len(set(passed[0]) ^ set(passed[1])),
    )


def _named(line: TrajectoryRecord) -> tuple[str, str]:
    """The task with its category, because two environments may use the same task names."""
    return line.category, line.task_id


def means(values: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """Each task's mean over its samples and seeds, whatever names a task."""
    return {task: fmean(found) for task, found in grouped(values).items()}
