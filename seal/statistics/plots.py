"""Curves of validation results over training steps, as PNG or as one HTML page."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import RenderableType

from seal.statistics.summary import Summary, informative
from seal.statistics.tables import console
from seal.system.files import write_text

COLOURS = {
    "base": "#0072B2",
    "miss_func": "#D55E00",
    "miss_param": "#009E73",
    "long_context": "#CC79A7",
    "average": "#222222",
}
"""A colour-blind-safe colour for each category of the benchmark."""


def draw_rates(axes: Axes, rows: Sequence[Summary], turns: bool = False) -> None:
    """Draw one line per category over steps, with the interval of the average shaded.

    turns: per-turn pass rates instead of whole tasks.
    """
    chosen = [row for row in informative(rows) if (row.turn_rate if turns else row.rate) is not None]
    names = dict.fromkeys(row.name for row in chosen)
    others = [name for name in names if name.partition("@")[0] not in COLOURS]
    for name in names:
        line = [row for row in chosen if row.name == name]
        rates = [row.turn_rate if turns else row.rate for row in line]
        steps = [row.step for row in line]
        colour = COLOURS.get(name.partition("@")[0]) or f"C{others.index(name) % 10}"
        average = line[0].is_average
        style = {"linewidth": 2.4, "markersize": 4, "zorder": 3} if average else {"linewidth": 1.3, "markersize": 3}
        style["linestyle"] = "--" if line[0].prefix > 0 and len({row.prefix for row in chosen}) > 1 else "-"
        shares = [100 * rate.rate for rate in rates]
        axes.plot(steps, shares, color=colour, marker="o", label=name.replace("_", " "), **style)
        if average or len({row.name for row in chosen}) == 1:
            low, high = [100 * rate.low for rate in rates], [100 * rate.high for rate in rates]
            if len(steps) > 1:
                axes.fill_between(steps, low, high, color=colour, alpha=0.12, linewidth=0)
            else:
                axes.vlines(steps, low, high, color=colour, alpha=0.5)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("turns passed, %" if turns else "tasks passed, %")
    tidy(axes)


def tidy(axes: Axes) -> None:
    """The style of every panel: no box, a light grid behind."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)


def rates_figure(runs: Mapping[str, Sequence[Summary]]) -> Figure:
    """One row of two panels (whole tasks, turns) for each named run."""
    figure = Figure(figsize=(10, 3.4 * len(runs)), layout="constrained")
    panels = figure.subplots(len(runs), 2, squeeze=False, sharey="col")
    for row, (name, rows) in zip(panels, runs.items(), strict=True):
        for axes, turns in zip(row, (False, True), strict=True):
            draw_rates(axes, rows, turns)
            axes.set_title(f"{name}: {'turns' if turns else 'whole tasks'}", loc="left", fontsize=10)
            axes.set_xlabel("training step")
        row[0].legend(fontsize=8, frameon=False)
    return figure


def save_rates(runs: Mapping[str, Sequence[Summary]], tables: Sequence[RenderableType], path: Path) -> None:
    """Draw the runs as .png, or as .html with the tables below; ValueError for another ending."""
    figure = rates_figure(runs)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        figure.savefig(path, dpi=140)
    elif path.suffix == ".html":
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
        svg = stream.getvalue()
        page = console(file=io.StringIO(), record=True)
        page.print(*tables, sep="\n")
        write_text(page.export_html().replace("<body>", f"<body>\n{svg[svg.index('<svg') :]}", 1), path)
    else:
        raise ValueError(f"{path}: a plot is written as .png or .html.")
