"""Everything that the paper reports for one model, beside its published figures."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from seal.records.source import CATEGORIES
from seal.statistics.summary import AVERAGE
from seal.statistics.tables import table, with_interval
from shelf.suites.bfcl_v4.categories import MEMORY, WEB_SEARCH
from shelf.suites.records import ItemRecord, SuiteHead
from shelf.suites.summary import Row, row_of

PUBLISHED = Path(__file__).with_name("published.toml")
STAGES = {"none": "base", "vanilla": "RL", "seal": "SEAL"}
"""The published models, and the heads of their columns."""

TITLES = {
    "bfcl": "BFCL V3 multi-turn",
    "bfcl-v4": "BFCL V4",
    "tau2": "tau2-bench",
}
GROUPS = {
    "bfcl": {name: (name,) for name in CATEGORIES},
    "bfcl-v4": {"web search": WEB_SEARCH, "memory": MEMORY},
    "tau2": {name: (name,) for name in ("retail", "airline", "telecom")},
}
"""The parts of each suite whose mean the paper reports."""


class PaperRow(NamedTuple):
    """A figure of the paper: ours, None if it could not be measured, and the published ones in percent.

    note: what differs from the paper, or why there is no figure.
    """

    suite: str
    name: str
    ours: Row | None
    published: Mapping[str, float]
    note: str


def published_models() -> tuple[str, ...]:
    """The base models for which the paper reports figures."""
    return tuple(_published())


def paper_rows(
    base: str,
    records: Sequence[ItemRecord],
    heads: Mapping[str, SuiteHead],
    differs: Mapping[str, str],
    failed: Mapping[str, str],
) -> list[PaperRow]:
    """A row for every figure that the paper reports for a model made from `base`.

    heads: of the suites that ran; differs: by suite, what is not as in the paper; failed: by
    suite, why it could not run. ValueError for a base model that the paper does not have.
    """
    tables = _published()
    if base not in tables:
        raise ValueError(f"The paper reports nothing for {base!r}: expected one of {', '.join(tables)}.")
    rows = []
    for suite, groups in GROUPS.items():
        figures = tables[base].get(suite, {})
        strata = {
            name: [[each for each in records if each.suite == suite and each.category == part] for part in parts]
            for name, parts in groups.items()
        }
        absent = [] if suite in heads else [failed.get(suite, "was not run")]
        skipped = heads[suite].skipped if suite in heads else {}
        absent += [f"{name} {why}" for name, why in skipped.items() if any(name in parts for parts in groups.values())]
        rows.append(_average(suite, strata, figures.get(AVERAGE, {}), absent, differs.get(suite, "")))
        rows += [
            _part(suite, name, found, figures.get(name, {}), skipped, groups[name]) for name, found in strata.items()
        ]
    return rows


def paper_table(rows: Sequence[PaperRow], model: str, base: str) -> Table:
    """The rows as a table, published figures to the right of ours."""
    made = table(f"{model} beside the paper's {base}", ["what", "pass % [95%]", "passed", *STAGES.values(), "note"])
    made.columns[-1].justify = "left"
    for row in rows:
        head = row.name == AVERAGE
        made.add_row(
            TITLES[row.suite] if head else f"  {row.name}",
            with_interval(row.ours.rate) if row.ours else "-",
            f"{row.ours.passed}/{row.ours.scored}" if row.ours else "-",
            *(f"{row.published[stage]:.2f}" if stage in row.published else "-" for stage in STAGES),
            row.note,
            style="bold" if head else None,
        )
    return made


def paper_record(row: PaperRow) -> dict[str, object]:
    """A row as one flat record; rates in [0, 1], published ones too."""
    rate = row.ours.rate if row.ours else None
    return {
        "suite": row.suite,
        "name": row.name,
        "rate": rate and rate.rate,
        "low": rate and rate.low,
        "high": rate and rate.high,
        "passed": row.ours.passed if row.ours else None,
        "scored": row.ours.scored if row.ours else None,
        **{f"published_{stage}": row.published[stage] / 100 if stage in row.published else None for stage in STAGES},
        "note": row.note,
    }


def _average(
    suite: str,
    strata: Mapping[str, Sequence[Sequence[ItemRecord]]],
    published: Mapping[str, float],
    absent: Sequence[str],
    differs: str,
) -> PaperRow:
    """The suite's mean over its parts, each of which weighs the same; none while a part is missing."""
    if absent:
        return PaperRow(suite, AVERAGE, None, published, "; ".join(absent))
    parts = [part for each in strata.values() for part in each]
    # Every group weighs the same, and so does every part of a group: parts are repeated as often as that needs.
    common = math.lcm(*map(len, strata.values()))
    weighed = [part for each in strata.values() for part in each for _ in range(common // len(each))]
    row = row_of(suite, AVERAGE, parts)._replace(rate=row_of(suite, AVERAGE, weighed).rate)
    if any(row_of(suite, "", [part]).rate is None for part in parts):
        return PaperRow(suite, AVERAGE, None, published, "some parts have no verdict at all")
    lost = row.infra + row.simulator
    return PaperRow(suite, AVERAGE, row, published, differs + (f"; {lost} attempts without a verdict" if lost else ""))


def _part(
    suite: str,
    name: str,
    strata: Sequence[Sequence[ItemRecord]],
    published: Mapping[str, float],
    skipped: Mapping[str, str],
    categories: Sequence[str],
) -> PaperRow:
    found = [stratum for stratum in strata if stratum]
    missing = [each for each in categories if each in skipped]
    note = f"without {', '.join(missing)}" if found and missing else ""
    return PaperRow(suite, name, row_of(suite, name, found) if found else None, published, note)


def _published() -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    return tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
