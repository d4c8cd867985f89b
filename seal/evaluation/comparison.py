"""Paired differences between runs, groups of seeds, or two steps of one run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from env_service.environments.bfcl.splits import CATEGORIES
from seal.evaluation.statistics import PairedDifference, paired_difference
from seal.evaluation.summary import Task
from seal.records.source import data_source
from seal.records.validation import ValidationLine


@dataclass(frozen=True)
class Side:
    """One side of a comparison: its name and the lines of each run (or seed) in it."""

    name: str
    runs: tuple[tuple[ValidationLine, ...], ...]

    @property
    def lines(self) -> tuple[ValidationLine, ...]:
        """The lines of all its runs."""
        return tuple(line for run in self.runs for line in run)


@dataclass(frozen=True)
class Comparison:
    """The difference b - a in one category or over all; unpaired counts tasks that only one side has."""

    a: str
    b: str
    name: str
    prefix: int
    pass_rate: PairedDifference
    turn_rate: PairedDifference | None
    unpaired: int


def compare(a: Side, b: Side, without: Collection[Task] = ()) -> tuple[Comparison, ...]:
    """Compare two sides on the tasks that both have, each category and the average over categories.

    ValueError when they share no task.
    """
    left_out = frozenset(without)
    lines_a = [line for line in a.lines if line.infra is None and (line.task_id, line.prefix) not in left_out]
    lines_b = [line for line in b.lines if line.infra is None and (line.task_id, line.prefix) not in left_out]
    rows = []
    for prefix in sorted({line.prefix for line in lines_a} & {line.prefix for line in lines_b}):
        at_a = [line for line in lines_a if line.prefix == prefix]
        at_b = [line for line in lines_b if line.prefix == prefix]
        shared = {line.category for line in at_a} & {line.category for line in at_b}
        present = [category for category in CATEGORIES if category in shared]
        for category in present:
            rows.append(_compare(a.name, b.name, data_source(category, prefix), prefix, at_a, at_b, (category,)))
        rows.append(_compare(a.name, b.name, data_source("average", prefix), prefix, at_a, at_b, CATEGORIES))
    if not rows:
        raise ValueError(f"{a.name} and {b.name} have no task in common: compare runs over the same tasks.")
    return tuple(rows)


def _compare(
    name_a: str,
    name_b: str,
    name: str,
    prefix: int,
    lines_a: Sequence[ValidationLine],
    lines_b: Sequence[ValidationLine],
    categories: Sequence[str],
) -> Comparison:
    kept_a = [line for line in lines_a if line.category in categories]
    kept_b = [line for line in lines_b if line.category in categories]
    clusters = {line.task_id: line.scenario for line in (*kept_a, *kept_b)}
    strata = {line.task_id: line.category for line in (*kept_a, *kept_b)}
    passed_a, passed_b = _mean(kept_a, _passed), _mean(kept_b, _passed)
    turns_a, turns_b = _mean(kept_a, _turn_share), _mean(kept_b, _turn_share)
    turns = {line.task_id: float(line.turns or 0) for line in (*kept_a, *kept_b)}
    with_turns = set(turns_a) & set(turns_b)
    return Comparison(
        a=name_a,
        b=name_b,
        name=name,
        prefix=prefix,
        pass_rate=paired_difference(passed_a, passed_b, clusters, strata),
        turn_rate=paired_difference(turns_a, turns_b, clusters, strata, turns) if with_turns else None,
        unpaired=len(set(passed_a) ^ set(passed_b)),
    )


def _passed(line: ValidationLine) -> float:
    return float(line.passed)


def _turn_share(line: ValidationLine) -> float | None:
    return line.turns_passed / line.turns if line.turns and line.turns_passed is not None else None


def _mean(lines: Iterable[ValidationLine], value: Callable[[ValidationLine], float | None]) -> dict[str, float]:
    """Each task's mean over its samples and seeds."""
    values: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        measured = value(line)
        if measured is not None:
            values[line.task_id].append(measured)
    return {task: sum(each) / len(each) for task, each in values.items()}
