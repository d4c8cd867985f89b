"""Tables for people (rich) and for programs (CSV, JSON) of summaries and comparisons."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from shelf.statistics.comparison import Comparison
from shelf.statistics.intervals import Estimate, PairedDifference
from shelf.statistics.summary import Summary, informative

TEXT_COLUMNS = frozenset({"arm", "category", "label", "cue", "what", "run"})

RATES = {"": "rate", "_low": "low", "_high": "high"}
"""The columns of a rate, by name suffix."""

FILE_WIDTH = 120
"""Width in characters of a table that goes to a file or a pipe."""


def console(**options: Any) -> Console:
    """A console that does not squeeze tables into 80 columns when it is not a terminal."""
    options = {"markup": False, "emoji": False, **options}
    made = Console(**options)
    return made if made.is_terminal or "width" in options else Console(**options, width=FILE_WIDTH)


def table(title: str, columns: Sequence[str]) -> Table:
    """An empty table in the project's style: text columns left, figures right."""
    style = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "pad_edge": False}
    made = Table(title=title, min_width=len(title), collapse_padding=True, **style)
    for name in columns:
        made.add_column(name, justify="left" if name in TEXT_COLUMNS else "right", overflow="fold")
    return made


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent, a dash for None."""
    return "-" if value is None else f"{100 * value:.{digits}f}"


def p_value(value: float) -> str:
    """A p-value as text: ``<.001``, ``.031``, ``1``."""
    return "<.001" if value < 0.001 else f"{value:.3f}".lstrip("0") if value < 1 else "1"


def with_interval(estimate: Estimate | None) -> str:
    """A rate in percent with its interval: ``14.0 [8.5, 22.1]``."""
    return "-" if estimate is None else f"{percent(estimate.rate)} [{percent(estimate.low)}, {percent(estimate.high)}]"


def with_difference(difference: PairedDifference | None) -> str:
    """A difference in points with its interval: ``+3.0 [-1.0, 7.0]``."""
    if difference is None:
        return "-"
    if difference.low == difference.high:  # all tasks agree, which says nothing about other tasks
        return f"{100 * difference.difference:+.1f} [-]"
    return f"{100 * difference.difference:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


def summary_table(rows: Sequence[Summary], title: str, without: Mapping[tuple[int, str], Summary]) -> Table:
    """Rates by step and category. without: the same rows without the suspected items, by step and name."""
    sampled = any(row.pass_at_k is not None for row in rows)
    infra = any(row.infra for row in rows)
    columns = ["step", "category", "pass % [95%]", "passed", "turns % [95%]"]
    ks = {row.samples for row in rows if row.pass_at_k is not None}
    k = min(ks) if len(ks) == 1 else "k"
    columns += ["samples", f"pass@{k} %", f"pass^{k} %"] if sampled else []
    columns += ["not run"] if infra else []
    columns += ["w/o susp."] if without else []
    made = table(title, columns)
    rows = informative(rows)
    for position, row in enumerate(rows):
        cells = [str(row.step), row.name, with_interval(row.rate), f"{row.passed}/{row.scored}"]
        cells.append(with_interval(row.turn_rate))
        cells += [str(row.samples), percent(row.pass_at_k), percent(row.pass_hat_k)] if sampled else []
        cells += [str(row.infra)] if infra else []
        if without:
            less = without.get((row.step, row.name))
            cells.append(percent(less.rate.rate if less and less.rate else None))
        last = position + 1 == len(rows) or rows[position + 1].step != row.step
        made.add_row(*cells, style="bold" if row.is_average else None, end_section=last)
    return made


def label_table(rows: Sequence[Summary]) -> Table | None:
    """The share of each label over all categories, one column per step; None without labels."""
    averages = [row for row in rows if row.is_average and row.labels]
    if not averages:
        return None
    several = len({row.prefix for row in averages}) > 1
    heads = [f"step {row.step}" + (row.name.removeprefix("average") if several else "") for row in averages]
    made = table("Labels, % of turns", ["label", *heads])
    names = dict.fromkeys(label for row in averages for label in row.labels)
    order = sorted(names, key=lambda label: -averages[0].labels.get(label, 0.0))
    for label in order:
        made.add_row(label, *(percent(row.labels.get(label, 0.0)) for row in averages))
    return made


def comparison_table(rows: Sequence[Comparison], title: str) -> Table:
    """Paired differences in points, with interval, discordant tasks and p-values."""
    columns = ["category", "tasks", "from %", "to %", "change [95%]", "won/lost", "p exact", "p boot", "turns [95%]"]
    made = table(title, columns)
    for row in rows:
        passed = row.pass_rate
        made.add_row(
            row.name,
            str(passed.pairs),
            percent(passed.mean_a),
            percent(passed.mean_b),
            with_difference(passed),
            "-" if passed.gained is None else f"{passed.gained}/{passed.lost}",
            "-" if passed.p_mcnemar is None else p_value(passed.p_mcnemar),
            p_value(passed.p_bootstrap),
            with_difference(row.turn_rate),
            style="bold" if row.is_average else None,
        )
    return made


def summary_record(row: Summary, suspected: str) -> dict[str, Any]:
    """A summary as one flat record; suspected says whether those items are in ("with") or out ("without")."""
    plain = ("tasks", "samples", "scored", "passed", "pass_at_k", "pass_hat_k", "turns", "turns_passed", "infra")
    return {
        "step": row.step,
        "category": row.name,
        "suspected": suspected,
        **{name: getattr(row, name) for name in plain},
        **{f"pass_rate{end}": row.rate and getattr(row.rate, name) for end, name in RATES.items()},
        **{f"turn_rate{end}": row.turn_rate and getattr(row.turn_rate, name) for end, name in RATES.items()},
        "labels": dict(row.labels),
    }


def comparison_record(row: Comparison, suspected: str) -> dict[str, Any]:
    """A comparison as one flat record."""
    head = {"a": row.a, "b": row.b, "category": row.name, "suspected": suspected, "unpaired": row.unpaired}
    names = [field.name for field in fields(PairedDifference)]
    passed = {f"pass_rate_{name}": getattr(row.pass_rate, name) for name in names}
    return head | passed | {f"turn_share_{name}": row.turn_rate and getattr(row.turn_rate, name) for name in names}


def to_csv(records: Iterable[Mapping[str, Any]]) -> str:
    """Records as CSV text; labels become one column each."""
    flat = [
        {key: value for key, value in record.items() if key != "labels"}
        | {f"label_{name}": share for name, share in record.get("labels", {}).items()}
        for record in records
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for record in flat for name in record)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()
