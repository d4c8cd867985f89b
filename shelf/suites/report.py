"""Reports on the results of suites: rates, paired differences and sentences, and the same figures for programs.

The estimates are those of validation logs (`shelf.statistics`): an attempt at an item is a line.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.table import Table

from shelf.statistics.comparison import Comparison, Side, compare
from shelf.statistics.intervals import pass_hat_k
from shelf.statistics.runs import ABOUT_COMPARISONS
from shelf.statistics.summary import Summary, informative, summarise_step
from shelf.statistics.tables import comparison_record, comparison_table, percent, summary_record, table, with_interval
from shelf.suites.records import ItemRecord, SuiteHead, SuiteResults, read_results

WITH = "with"
"""The value for suspected items in records: suites do not leave any out."""

_FREE = frozenset({"seed", "version"})
"""Settings in which comparable evaluations may differ; the version has its own field."""


class Report(NamedTuple):
    """Tables and sentences for people, and records for programs."""

    tables: Sequence[RenderableType]
    records: Mapping[str, Any]


class CategoryRates(NamedTuple):
    """The rates of one category or of all; pass_hat: the chance that k attempts at an item all pass, k = 1, 2, ..."""

    rates: Summary
    pass_hat: tuple[float, ...]


def summarise_results(folder: Path) -> Report:
    """The rates of one evaluation; ValueError if the folder holds none."""
    head, items, bad = read_results(folder)
    rows = summarise(items)
    tables = [suite_table(rows, f"{head.suite} of {folder}, {head.model}"), *_sentences(head, items), *map(str, bad)]
    records = [
        summary_record(row.rates, WITH) | {f"pass_hat_{k}": value for k, value in enumerate(row.pass_hat, start=1)}
        for row in rows
    ]
    return Report(tables, {"summaries": records})


def compare_results(names: Sequence[str]) -> Report:
    """Compare evaluations with the first one; commas in a name join the seeds of one side.

    ValueError if an evaluation is named twice, or if two differ in more than their model.
    """
    if len(names) < 2 or max(Counter(",".join(names).split(",")).values()) > 1:
        raise ValueError("Name at least two different evaluations.")
    sides = {name: [read_results(Path(folder)) for folder in name.split(",")] for name in names}
    (first, reference), *others = sides.items()
    tables: list[RenderableType] = []
    records = []
    for name, results in others:
        _require_comparable({first: reference, name: results})
        rows = differences((first, reference), (name, results))
        tables.append(comparison_table(rows, f"{reference[0].head.suite}: {name} against {first}"))
        items = [[item for run in each for item in run.items] for each in (reference, results)]
        unpaired = len(set.symmetric_difference(*({x.task for x in each if x.infra is None} for each in items)))
        tables += [f"{unpaired} items are on one side only and left out."] if unpaired else []
        lost = sum(item.infra is not None for each in items for item in each)
        tables += [f"{lost} attempts have no verdict and are not counted."] if lost else []
        records += [comparison_record(row, WITH) for row in rows]
    tables += [str(line) for runs in sides.values() for run in runs for line in run.bad]
    about = ABOUT_COMPARISONS.replace("whole scenarios", "whole scenarios or items")
    return Report([*tables, about], {"comparisons": records})


def summarise(items: Iterable[ItemRecord]) -> list[CategoryRates]:
    """A row for each category of a suite, and for several their average."""
    items = list(items)
    attempts: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        if item.infra is None:
            attempts[item.category][item.item].append(item.passed)
    rows = []
    for rates in informative(summarise_step(items)):
        strata = list(attempts.values()) if rates.is_average else [attempts.get(rates.name, {})]
        rows.append(CategoryRates(rates, tuple(_pass_hat(strata, k) for k in range(1, rates.samples + 1))))
    return rows


def differences(a: tuple[str, Sequence[SuiteResults]], b: tuple[str, Sequence[SuiteResults]]) -> list[Comparison]:
    """The differences b - a on the items that both have, by category and, if there are several, averaged over them.

    Each side is its name and the results of one evaluation or several (seeds). ValueError if they share no item.
    """
    rows = compare(*(Side(name, tuple(run.items for run in runs)) for name, runs in (a, b)))
    return [row for row in rows if len(rows) > 2 or not row.is_average]


def suite_table(rows: Sequence[CategoryRates], title: str) -> Table:
    """Rates by category; columns for several attempts and for failures appear only if there are any."""
    trials = max((row.rates.samples for row in rows), default=0)
    columns = ["category", "pass % [95%]", "passed"]
    columns += [f"pass^{k} %" for k in range(1, trials + 1)] if trials > 1 else []
    infra = any(row.rates.infra for row in rows)
    made = table(title, [*columns, *(["not run"] if infra else [])])
    for rates, pass_hat in rows:
        cells = [rates.name, with_interval(rates.rate), f"{rates.passed}/{rates.scored}"]
        if trials > 1:
            cells += [percent(pass_hat[k]) if k < len(pass_hat) else "-" for k in range(trials)]
        cells += [str(rates.infra)] if infra else []
        made.add_row(*cells, style="bold" if rates.is_average else None)
    return made


def _pass_hat(strata: Sequence[Mapping[str, Sequence[bool]]], k: int) -> float:
    means = [sum(pass_hat_k(len(each), sum(each), k) for each in items.values()) / len(items) for items in strata]
    return sum(means) / len(means)


def _sentences(head: SuiteHead, items: Sequence[ItemRecord]) -> Iterable[str]:
    """Sentences beside the table: official figures, skipped categories, failures and their causes."""
    if head.official:
        figures = ", ".join(f"{name} {percent(value, 2)}" for name, value in head.official.items())
        yield f"official figures (%): {figures}"
    for category, why in head.skipped.items():
        yield f"{category} is skipped: it {why}."
    if causes := Counter(item.infra for item in items if item.infra):
        counted = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
        yield f"{causes.total()} attempts have no verdict and are not counted ({counted})."
    if ended := sum(item.stop == "user_out_of_scope" for item in items):
        yield f"The simulated user ended {ended} dialogues as out of its scope; they count as the tool scored them."
    if head.package:
        yield f"{head.package} {head.version}, data {head.data_hash[:16]}"


def _require_comparable(sides: Mapping[str, Sequence[SuiteResults]]) -> None:
    """ValueError if evaluations of the two sides differ in more than the model and the seed."""
    a, b = sides
    for one in (run.head for run in sides[a]):
        for other in (run.head for run in sides[b]):
            known = {
                "suite": (one.suite, other.suite),
                "version": (one.version, other.version),
                "data": (one.data_hash, other.data_hash),
            }
            for name in {*one.settings, *other.settings} - _FREE:
                known[name] = (one.settings.get(name), other.settings.get(name))
            differing = sorted(name for name, (left, right) in known.items() if left != right)
            if differing:
                raise ValueError(f"{a} and {b} were measured with another {', '.join(differing)}: not comparable.")
