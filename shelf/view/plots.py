"""Curves of validation results over training steps, and the colours of the drawings."""

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes

from seal.method.labels import EXCLUDED
from shelf.statistics.summary import Summary, informative

COLOURS = {
    "base": "#0072B2",
    "miss_func": "#D55E00",
    "miss_param": "#009E73",
    "long_context": "#CC79A7",
    "average": "#222222",
}
"""A colour-blind-safe colour for each category of the benchmark."""

LABELS = {
    "pass": "#2f9e78",
    "correct_abstention": "#86cbb3",
    "state_mismatch": "#2f7fc1",
    "missing_tool_call": "#d9822b",
    "empty_turn_model_response": "#d9822b",
    "invalid_tool_call": "#b3569b",
    "recovery_failure": "#c44536",
    "argument_mismatch": "#6c5fc7",
    "response_mismatch": "#55a9d6",
    "spurious_tool_call": "#8a6d3b",
    "instance_mismatch": "#3f4b4a",
}
"""The colours of labels, the same in the viewer's light theme (web/src/style.css)."""
OTHER = "#8b9695"
"""The colour of labels that count nowhere."""


def draw_rates(axes: Axes, rows: Sequence[Summary], turns: bool = False) -> None:
    """Draw a line per category over steps, with the average's interval shaded. turns: rates of turns, not of tasks."""
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


def colours(labels: Iterable[str]) -> dict[str, str]:
    """A colour for each label; labels of extensions also get their own colours."""
    labels = tuple(labels)
    own = [label for label in labels if label not in LABELS and label not in EXCLUDED]
    return {label: f"C{own.index(label) % 10}" if label in own else LABELS.get(label, OTHER) for label in labels}
