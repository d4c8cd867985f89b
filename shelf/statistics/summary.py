"""The summary of a validation log: rates by step and category, label shares, missing tasks, suspected items.

``suspected_items.json`` lists the benchmark items that were reported or found to be wrong, and why.
Figures are printed with and without them; nothing else treats them differently.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from seal.method.diagnosis.categories import environment_of
from seal.records.benchmark import CATEGORIES, MADE_CATEGORIES
from seal.records.source import UNSCORED, categories_to_average, data_source, order_categories
from seal.records.trajectory import TrajectoryRecord, count_labels, shares
from seal.system.grouping import grouped
from shelf.statistics.intervals import Estimate, SuccessCount, estimate, pass_at_k, pass_hat_k
from shelf.statistics.log import Log, has_verdict, judged_turns

AVERAGE = "average"
BFCL = "BFCL V3 multi-turn"
FOREIGN = "foreign"
"""A placeholder for the environment of rollouts that other programs played."""
DEFAULT_PATH = Path(__file__).with_name("suspected_items.json")

Task = tuple[str, int]
"""A task id and the prefix that was played, -1 for the whole task."""
Expected = tuple[str, str, int]
"""A task with its environment before it: two environments may use the same task names."""


class SuspectedItem(BaseModel):
    """One item, why it is suspected, and where it was reported; turn (from 0) is the wrong turn."""

    model_config = ConfigDict(frozen=True)

    task_id: str
    turn: int
    reason: str
    link: str | None = None

    def concerns(self, prefix: int) -> bool:
        """Return whether a prefix of this many turns (-1: the whole task) contains the wrong turn."""
        return prefix < 0 or prefix > self.turn


class _Items(BaseModel):
    items: tuple[SuspectedItem, ...]


def load_suspected() -> tuple[SuspectedItem, ...]:
    """The suspected items."""
    return _Items.model_validate_json(DEFAULT_PATH.read_bytes()).items


class Summary(NamedTuple):
    """One row of the table: a step and a category, or the average over categories.

    Rates leave out lines whose rollout failed for reasons other than the policy (infra counts those), lines without a
    reward, and turns without a label. samples is the smallest number of rollouts per task; pass_at_k (one of them
    passes) is None if it is 1. pass_hat: the chance that k rollouts all pass, k = 1, ..., samples. labels gives each
    label's share of the labelled turns.
    """

    step: int
    name: str
    prefix: int
    tasks: int
    samples: int
    passed: int
    scored: int
    rate: Estimate | None
    turns_passed: int
    turns: int
    turn_rate: Estimate | None
    pass_at_k: float | None
    pass_hat: tuple[float, ...]
    infra: int
    labels: Mapping[str, float]

    @property
    def pass_hat_k(self) -> float | None:
        """The chance that all samples of a task pass; None for one sample."""
        return self.pass_hat[-1] if self.samples > 1 else None

    @property
    def is_average(self) -> bool:
        """True for the row over all categories."""
        return self.name.startswith(AVERAGE)


def summarise_step(lines: Iterable[TrajectoryRecord], without: Collection[Task] = ()) -> tuple[Summary, ...]:
    """The rows of one step's lines: each category in table order, then the average; prefixes after whole tasks.

    without: tasks to leave out (the suspected ones).
    """
    groups = grouped(((line.prefix, line.category), line) for line in lines if line.task not in without)
    rows = []
    for prefix in sorted({prefix for prefix, _category in groups}):
        present = order_categories(category for at, category in groups if at == prefix)
        strata = {category: groups[prefix, category] for category in present}
        rows += [_row(category, prefix, [stratum]) for category, stratum in strata.items()]
        rows.append(_row(AVERAGE, prefix, [strata[category] for category in categories_to_average(strata)]))
    return tuple(rows)


def summarise(log: Log, without: Collection[Task] = ()) -> tuple[Summary, ...]:
    """The rows of every step of a log, ascending."""
    return tuple(row for step in log.steps for row in summarise_step(log.at(step), without))


def informative(rows: Sequence[Summary]) -> tuple[Summary, ...]:
    """The rows without averages over a single category, which only repeat that category."""
    counts = Counter((row.step, row.prefix) for row in rows if not row.is_average)
    return tuple(row for row in rows if not row.is_average or counts[row.step, row.prefix] > 1)


def tasks_in_words(categories: Iterable[str]) -> str:
    """The tasks of some categories in words: the benchmark's, synthesised ones, or those of another environment."""
    names = {**dict.fromkeys(CATEGORIES, BFCL), **dict.fromkeys(MADE_CATEGORIES, "tasks synthesised on BFCL's tools")}
    others = dict.fromkeys((FOREIGN, UNSCORED), "tasks of other programs")
    kinds = ((each, environment_of(each)) for each in order_categories(categories))
    named = (names.get(each) or others.get(where, f"the environment {where}") for each, where in kinds)
    return " and ".join(dict.fromkeys(named)) or "no tasks"


def suspected_tasks(lines: Iterable[TrajectoryRecord], items: Iterable[SuspectedItem]) -> frozenset[Task]:
    """The tasks among the lines whose wrong turn was played."""
    faults = {item.task_id: item for item in items}
    played = {line.task for line in lines if line.task_id in faults}
    return frozenset((task, prefix) for task, prefix in played if faults[task].concerns(prefix))


def played(lines: Iterable[TrajectoryRecord]) -> set[Expected]:
    """The tasks of some lines."""
    return {(line.environment, *line.task) for line in lines}


def label_shares(lines: Iterable[TrajectoryRecord]) -> dict[str, float]:
    """Each label's share of the labelled turns, most frequent first; failures of the checker are left out."""
    counts = count_labels(line.labels for line in lines)
    return shares(dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))))


def _row(name: str, prefix: int, strata: Sequence[Sequence[TrajectoryRecord]]) -> Summary:
    lines = [line for stratum in strata for line in stratum]
    ran = [line for line in lines if line.infra is None]
    judged = [[line for line in stratum if has_verdict(line)] for stratum in strata]
    flat = [line for stratum in judged for line in stratum]
    turned = [[line for line in stratum if judged_turns(line)] for stratum in judged]
    met = [
        [SuccessCount(line.scenario, line.turns_passed, judged_turns(line)) for line in stratum] for stratum in turned
    ]
    outcomes = [grouped((line.task_id, line.passed) for line in stratum) for stratum in judged if stratum]
    samples = min((len(each) for tasks in outcomes for each in tasks.values()), default=0)

    def mean(chance: Callable[[int, int, int], float], k: int) -> float:
        return fmean(fmean(chance(len(each), sum(each), k) for each in tasks.values()) for tasks in outcomes)

    return Summary(
        step=lines[0].step,
        name=data_source(name, prefix),
        prefix=prefix,
        tasks=sum(len({line.task_id for line in stratum}) for stratum in strata),
        samples=samples,
        passed=sum(line.passed for line in flat),
        scored=len(flat),
        rate=estimate([[SuccessCount(line.scenario, float(line.passed)) for line in stratum] for stratum in judged]),
        turns_passed=sum(line.turns_passed for stratum in turned for line in stratum),
        turns=sum(judged_turns(line) for stratum in turned for line in stratum),
        turn_rate=estimate(met),
        pass_at_k=mean(pass_at_k, samples) if samples > 1 else None,
        pass_hat=tuple(mean(pass_hat_k, k) for k in range(1, samples + 1)),
        infra=len(lines) - len(ran),
        labels=label_shares(ran),
    )
