"""Reports on the results of suites: rates, paired differences and sentences, and the same figures for programs.

The estimates are those of validation logs (`shelf.statistics`): an attempt at an item is a line.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.table import Table

from shelf.statistics.comparison import Side, compare
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


def summarise_results(folder: Path) -> Report:
    """The rates of one evaluation; ValueError if the folder holds none."""
    head, items, bad = read_results(folder)
    rows = informative(summarise_step(items))
    tables = [suite_table(rows, f"{head.suite} of {folder}, {head.model}"), *_sentences(head, items), *map(str, bad)]
    records = [
        summary_record(row, WITH) | {f"pass_hat_{k}": value for k, value in enumerate(row.pass_hat, start=1)}
        for row in rows
    ]
    return Report(tables, {"summaries": records})


def compare_results(names: Sequence[str]) -> Report:
    """Compare evaluations with the first one; commas in a name join the seeds of one side.

    ValueError if an evaluation is named twice, or if two differ in more than their model.
    """
    if len(names) < 2 or max(Counter(Path(each).resolve() for each in ",".join(names).split(",")).values()) > 1:
        raise ValueError("Name at least two different evaluations.")
    sides = {name: [read_results(Path(folder)) for folder in name.split(",")] for name in names}
    (first, reference), *others = sides.items()
    tables: list[RenderableType] = []
    records = []
    for name, results in others:
        both = {first: reference, name: results}
        _require_comparable(both)
        rows = compare(*(Side(side, tuple(run.items for run in runs)) for side, runs in both.items()))
        rows = [row for row in rows if len(rows) > 2 or not row.is_average]
        tables.append(comparison_table(rows, f"{reference[0].head.suite}: {name} against {first}"))
        items = [[item for run in each for item in run.items] for each in both.values()]
        unpaired = len(set.symmetric_difference(*({x.task for x in each if x.infra is None} for each in items)))
        tables += [f"{unpaired} items are on one side only and left out."] if unpaired else []
        lost = sum(item.infra is not None for each in items for item in each)
        tables += [f"{lost} attempts have no verdict and are not counted."] if lost else []
        records += [comparison_record(row, WITH) for row in rows]
    tables += [str(line) for runs in sides.values() for run in runs for line in run.bad]
    about = ABOUT_COMPARISONS.replace("whole scenarios", "whole scenarios or items")
    return Report([*tables, about], {"comparisons": records})


def suite_table(rows: Sequence[Summary], title: str) -> Table:
    """Rates by category; columns for several attempts and for failures appear only if there are any."""
    trials = max((row.samples for row in rows), default=0)
    columns = ["category", "pass % [95%]", "passed"]
    columns += [f"pass^{k} %" for k in range(1, trials + 1)] if trials > 1 else []
    infra = any(row.infra for row in rows)
    made = table(title, [*columns, *(["not run"] if infra else [])])
    for row in rows:
        cells = [row.name, with_interval(row.rate), f"{row.passed}/{row.scored}"]
        if trials > 1:
            cells += [percent(row.pass_hat[k]) if k < len(row.pass_hat) else "-" for k in range(trials)]
        cells += [str(row.infra)] if infra else []
        made.add_row(*cells, style="bold" if row.is_average else None)
    return made


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
            known = {name: (getattr(one, name), getattr(other, name)) for name in ("suite", "version", "data_hash")}
            for name in {*one.settings, *other.settings} - _FREE:
                known[name] = (one.settings.get(name), other.settings.get(name))
            differing = sorted(name for name, (left, right) in known.items() if left != right)
            if differing:
                raise ValueError(f"{a} and {b} were measured with another {', '.join(differing)}: not comparable.")
