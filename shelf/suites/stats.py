"""`seal stats` over the results of suites: rates of one evaluation, paired differences of several."""

from collections.abc import Sequence

from rich.console import RenderableType

from seal.statistics.runs import ABOUT_COMPARISONS, Findings
from seal.statistics.tables import comparison_record, comparison_table
from shelf.suites.records import ItemRecord, SuiteHead, SuiteResults, holds_results, read_results
from shelf.suites.summary import compare, summarise
from shelf.suites.tables import provenance, row_record, sentences, suite_table

WITHOUT = "with"
"""What comparison records say of suspected items: suites leave none out."""


def are_suites(names: Sequence[str]) -> bool:
    """Whether runs named for a comparison are results of suites; ValueError if only some are."""
    found = [holds_results(folder) for name in names for folder in name.split(",")]
    if any(found) and not all(found):
        raise ValueError("Some of the runs are results of suites and some are validation logs: compare one kind.")
    return any(found)


def summarise_results(folder: str) -> Findings:
    """The rates of one evaluation, or of all suites in a folder."""
    results = read_results(folder)
    tables: list[RenderableType] = []
    rows = summarise(results.items)
    for head in results.heads:
        parts = [row for row in rows if row.suite == head.suite]
        tables += [suite_table(parts, f"{head.suite} of {folder}, {head.model}"), *sentences(head, parts)]
    return Findings(
        kind="summaries",
        tables=tuple(tables),
        records=tuple(map(row_record, rows)),
        curves={},
        bad=results.bad,
        missing=(),
        provenance=provenance(results.heads),
    )


def compare_results(names: Sequence[str]) -> Findings:
    """Compare evaluations with the first one; commas in a name join the seeds of one side.

    ValueError if an evaluation is named twice, or if two differ in more than their model.
    """
    if len(names) != len(set(names)) or len(names) < 2:
        raise ValueError("Name at least two different evaluations in --compare.")
    sides = {name: _joined([read_results(folder) for folder in name.split(",")]) for name in names}
    (first, reference), *others = sides.items()
    tables: list[RenderableType] = []
    records = []
    for name, results in others:
        _require_comparable(first, reference.heads, name, results.heads)
        rows = compare((first, reference.items), (name, results.items))
        tables.append(comparison_table(rows, f"{name} against {first}"))
        records += [comparison_record(row, WITHOUT) for row in rows]
        unpaired = sum(row.unpaired for row in rows if not row.is_average)
        tables += [f"{unpaired} items are on one side only and left out."] if unpaired else []
    heads = [head for results in sides.values() for head in results.heads]
    return Findings(
        kind="comparisons",
        tables=(*tables, ABOUT_COMPARISONS.replace("whole scenarios", "whole scenarios or items")),
        records=tuple(records),
        curves={},
        bad=tuple(line for results in sides.values() for line in results.bad),
        missing=(),
        provenance=provenance(heads),
    )


def _joined(results: Sequence[SuiteResults]) -> SuiteResults:
    """The results of several seeds as one side."""
    heads = tuple(head for each in results for head in each.heads)
    items: tuple[ItemRecord, ...] = tuple(item for each in results for item in each.items)
    return SuiteResults(heads, items, tuple(line for each in results for line in each.bad))


def _require_comparable(a: str, heads_a: Sequence[SuiteHead], b: str, heads_b: Sequence[SuiteHead]) -> None:
    for one in heads_a:
        for other in heads_b:
            if one.suite != other.suite:
                continue
            known = {"version": (one.version, other.version), "data": (one.data_hash, other.data_hash)}
            for name in {*one.settings, *other.settings} - _FREE:
                known[name] = (one.settings.get(name), other.settings.get(name))
            differing = sorted(name for name, (left, right) in known.items() if left != right)
            if differing:
                raise ValueError(f"{a} and {b} were measured with another {', '.join(differing)}: not comparable.")


_FREE = frozenset({"seed"})
"""Settings in which comparable evaluations may differ."""
