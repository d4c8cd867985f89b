"""Tables of suites' results, and the same figures as flat records for programs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from seal.statistics.tables import RATES, percent, table, with_interval
from shelf.suites.records import SuiteHead
from shelf.suites.summary import Row


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


def sentences(head: SuiteHead, rows: Sequence[Row]) -> list[str]:
    """What the table does not say: official figures, skipped categories, failures and their causes."""
    parts = [row for row in rows if not row.is_average and row.suite == head.suite]
    said = []
    if head.official:
        figures = ", ".join(f"{name} {percent(value, 2)}" for name, value in head.official.items())
        said.append(f"official figures (%): {figures}")
    said += [f"{category} is skipped: it {why}." for category, why in head.skipped.items()]
    causes: dict[str, int] = {}
    for row in parts:
        for cause, count in row.causes:
            causes[cause] = causes.get(cause, 0) + count
    if causes:
        counted = ", ".join(f"{cause} {count}" for cause, count in causes.items())
        said.append(f"{sum(causes.values())} attempts have no verdict and are not counted ({counted}).")
    if ended := sum(row.out_of_scope for row in parts):
        said.append(
            f"The simulated user ended {ended} dialogues as out of its scope; they count as the tool scored them."
        )
    if head.package:
        said.append(f"{head.package} {head.version}, data {head.data_hash[:16]}")
    return said


def row_record(row: Row) -> dict[str, Any]:
    """A row as one flat record."""
    plain = (
        "suite",
        "category",
        "planned",
        "items",
        "samples",
        "scored",
        "passed",
        "simulator",
        "infra",
        "out_of_scope",
    )
    return {
        **{name: getattr(row, name) for name in plain},
        **{f"pass_rate{end}": row.rate and getattr(row.rate, name) for end, name in RATES.items()},
        **{f"pass_hat_{k}": value for k, value in enumerate(row.pass_hat, start=1)},
    }


def provenance(heads: Iterable[SuiteHead]) -> Mapping[str, list[str]]:
    """The tools and data hashes of some results."""
    heads = list(heads)
    tools = {f"{head.package} {head.version}" for head in heads if head.package}
    return {"tools": sorted(tools), "data_hash": sorted({head.data_hash for head in heads} - {""})}
