"""What the results of suites say: tables, sentences, and the same figures as flat records for programs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import RenderableType
from rich.table import Table

from seal.statistics.runs import ABOUT_COMPARISONS
from seal.statistics.tables import (
    RATES,
    comparison_record,
    comparison_table,
    percent,
    table,
    with_interval,
)
from shelf.suites.records import SuiteHead, SuiteResults, read_results
from shelf.suites.summary import Row, compare, summarise

WITHOUT = "with"
"""What comparison records say of suspected items: suites leave none out."""

_FREE = frozenset({"seed", "version"})
"""Settings in which comparable evaluations may differ; the version has a field of its own."""

_PLAIN = ("category", "planned", "items", "samples", "scored", "passed", "simulator", "infra", "out_of_scope")


class Report(NamedTuple):
    """Tables and sentences for people, and records for programs."""

    tables: Sequence[RenderableType]
    records: Mapping[str, Any]


def summarise_results(folder: Path) -> Report:
    """The rates of one evaluation; ValueError if the folder holds none."""
    head, items, bad = read_results(folder)
    rows = summarise(items)
    made = suite_table(rows, f"{head.suite} of {folder}, {head.model}")
    problems = [str(line) for line in bad]
    return Report([made, *_sentences(head, rows), *problems], {"summaries": [_record(row) for row in rows]})


def compare_results(names: Sequence[str]) -> Report:
    """Compare evaluations with the first one; commas in a name join the seeds of one side.

    ValueError if an evaluation is named twice, or if two differ in more than their model.
    """
    if len(names) != len(set(names)) or len(names) < 2:
        raise ValueError("Name at least two different evaluations.")
    sides = {name: [read_results(Path(folder)) for folder in name.split(",")] for name in names}
    (first, reference), *others = sides.items()
    tables: list[RenderableType] = []
    records = []
    for name, results in others:
        _require_comparable({first: reference, name: results})
        rows = compare(
            *(
                (side, [item for run in runs for item in run.items])
                for side, runs in ((first, reference), (name, results))
            )
        )
        tables.append(comparison_table(rows, f"{reference[0].head.suite}: {name} against {first}"))
        unpaired = sum(row.unpaired for row in rows if not row.is_average)
        tables += [f"{unpaired} items are on one side only and left out."] if unpaired else []
        records += [comparison_record(row, WITHOUT) for row in rows]
    tables += [str(line) for runs in sides.values() for run in runs for line in run.bad]
    about = ABOUT_COMPARISONS.replace("whole scenarios", "whole scenarios or items")
    return Report([*tables, about], {"comparisons": records})


def suite_table(rows: Sequence[Row], title: str) -> Table:
    """Rates by category; columns for several attempts and for failures only where there are any."""
    trials = max((row.samples for row in rows), default=0)
    several = trials > 1
    simulator, infra = any(row.simulator for row in rows), any(row.infra for row in rows)
    columns = ["category", "pass % [95%]", "passed", *(f"pass^{k} %" for k in range(1, trials + 1) if several)]
    columns += ["simulator"] if simulator else []
    columns += ["not run"] if infra else []
    made = table(title, columns)
    for row in rows:
        cells = [row.category, with_interval(row.rate), f"{row.passed}/{row.scored}"]
        if several:
            cells += [percent(row.pass_hat[k]) if k < len(row.pass_hat) else "-" for k in range(trials)]
        cells += [str(row.simulator)] if simulator else []
        cells += [str(row.infra)] if infra else []
        made.add_row(*cells, style="bold" if row.is_average else None)
    return made


def _sentences(head: SuiteHead, rows: Sequence[Row]) -> Iterable[str]:
    """What the table does not say: official figures, skipped categories, failures and their causes."""
    parts = [row for row in rows if not row.is_average]
    if head.official:
        figures = ", ".join(f"{name} {percent(value, 2)}" for name, value in head.official.items())
        yield f"official figures (%): {figures}"
    for category, why in head.skipped.items():
        yield f"{category} is skipped: it {why}."
    causes: Counter[str] = Counter()
    for row in parts:
        causes.update(dict(row.causes))
    if causes:
        counted = ", ".join(f"{cause} {count}" for cause, count in causes.items())
        yield f"{causes.total()} attempts have no verdict and are not counted ({counted})."
    if ended := sum(row.out_of_scope for row in parts):
        yield f"The simulated user ended {ended} dialogues as out of its scope; they count as the tool scored them."
    if head.package:
        yield f"{head.package} {head.version}, data {head.data_hash[:16]}"


def _record(row: Row) -> dict[str, Any]:
    return {
        **{name: getattr(row, name) for name in _PLAIN},
        **{f"pass_rate{end}": row.rate and getattr(row.rate, name) for end, name in RATES.items()},
        **{f"pass_hat_{k}": value for k, value in enumerate(row.pass_hat, start=1)},
    }


def _require_comparable(sides: Mapping[str, Sequence[SuiteResults]]) -> None:
    """ValueError if evaluations of the two sides differ in what results depend on beside the model and the seed."""
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
