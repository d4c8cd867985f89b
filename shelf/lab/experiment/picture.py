"""One picture of an experiment: effects with intervals, and each arm's learning curve beside its control's."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from shelf.lab.experiment.design import Design
from shelf.lab.experiment.effects import Curve, Effect
from shelf.statistics.tables import p_value
from shelf.view.plots import tidy

ARM, AGAINST, AREA = "#0072B2", "#8A8A8A", "#D55E00"
COLUMNS = 4
MOST_TICKS = 7
ROW_IN, PANEL_IN = 0.42, 2.5
"""Height in inches of a comparison's row, and of a panel of curves."""
BESIDE = {"points": 1.06, "p Holm": 1.13, "seeds": 1.19}
"""The figures beside the intervals, and the x position of their right end, in widths of the panel."""


def draw(
    design: Design, primary: Sequence[Effect], area: Sequence[Effect], curves: Sequence[Curve], path: Path
) -> None:
    """Draw the effects on the primary outcome, and one panel of curves per comparison, as a PNG file."""
    by_arm = {curve.arm: curve for curve in curves if len(curve.steps) > 1}
    shown = [c for c in design.contrasts if c.arm in by_arm and c.against in by_arm]
    rows = math.ceil(len(shown) / COLUMNS)
    heights = [max(1.8, 1.2 + ROW_IN * len(design.contrasts)), *([PANEL_IN * rows] if rows else [])]
    figure = Figure(figsize=(12, sum(heights) + 0.4), layout="constrained")
    figure.suptitle(design.name, x=0.01, ha="left", fontsize=14, fontweight="bold")
    figure.get_layout_engine().set(w_pad=0.12)
    parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    _forest(parts[0].subplots(), design, primary, area)
    if rows:
        single = len({contrast.against for contrast in shown}) == 1
        other = shown[0].against if single else "what it is compared with"
        about = f"{design.primary.set}, % over training steps: each arm (blue), {other} (grey); bands: 95% over seeds"
        parts[1].suptitle(about, x=0.01, ha="left", fontsize=10.5)
        panels = parts[1].subplots(rows, min(COLUMNS, len(shown)), sharex=True, sharey=True, squeeze=False)
        for axes in panels.flat[len(shown) :]:
            axes.set_axis_off()
        for axes, contrast in zip(panels.flat, shown, strict=False):
            _curves(axes, by_arm[contrast.arm], by_arm[contrast.against])
            name = contrast.arm if single else f"{contrast.arm}  (against {contrast.against})"
            axes.set_title(name, loc="left", fontsize=9)
        top = max(max(np.nanmax(curve.means), *np.nan_to_num(curve.high)) for curve in by_arm.values())
        panels[0, 0].set_ylim(0, 105 * top if top > 0 else 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _forest(axes: Axes, design: Design, primary: Sequence[Effect], area: Sequence[Effect]) -> None:
    axes.set_title(f"{design.primary.title}: difference in points with 95% interval", loc="left", fontsize=10.5)
    names = [f"{contrast.arm} - {contrast.against}" for contrast in design.contrasts]
    if not primary:
        axes.text(0.5, 0.5, "no comparison yet", ha="center", va="center", transform=axes.transAxes, color="#888888")
        axes.set_axis_off()
        return
    axes.axvline(0, color="#444444", linewidth=1)
    apart = 1 if area else 0
    rows = ((primary, -0.13 * apart, ARM, "outcome"), (area, 0.2 * apart, AREA, "area under the curve"))
    for effects, offset, colour, label in rows:
        at = [design.contrasts.index(effect.contrast) + offset for effect in effects]
        value = np.array([100 * effect.difference.value for effect in effects])
        low, high = (np.array([100 * getattr(e.difference, end) for e in effects]) for end in ("low", "high"))
        style = {"fmt": "o", "color": colour, "markersize": 5, "elinewidth": 1.8, "capsize": 0, "label": label}
        if len(at):
            axes.errorbar(value, at, xerr=[value - low, high - value], **style)
    right = axes.get_yaxis_transform()
    for effect in primary:
        row = design.contrasts.index(effect.contrast)
        cells = f"{100 * effect.difference.value:+.1f}", p_value(effect.p_holm), str(len(effect.seeds))
        for place, text in zip(BESIDE.values(), cells, strict=True):
            axes.text(place, row, text, transform=right, va="center", ha="right", fontsize=8.5, color="#333333")
    for name, place in BESIDE.items():
        axes.text(place, -0.75, name, transform=right, va="bottom", ha="right", fontsize=8.5, color="#666666")
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set_ylim(len(names) - 0.5, -0.6)
    axes.set_xlabel("percentage points", fontsize=9)
    axes.tick_params(axis="x", labelsize=8.5)
    tidy(axes)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.7)
    axes.grid(axis="y", visible=False)
    if len(area):
        axes.legend(frameon=False, fontsize=8.5, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, borderaxespad=0)


def _curves(axes: Axes, arm: Curve, against: Curve) -> None:
    for curve, colour, width, order in ((against, AGAINST, 1.5, 1), (arm, ARM, 2.0, 2)):
        means, low, high = (100 * np.array(values) for values in (curve.means, curve.low, curve.high))
        axes.plot(curve.steps, means, color=colour, linewidth=width, marker="o", markersize=3, zorder=order + 2)
        axes.fill_between(curve.steps, low, high, color=colour, alpha=0.18, linewidth=0, zorder=order)
    if len(arm.steps) <= MOST_TICKS:
        axes.set_xticks(arm.steps)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(MOST_TICKS, integer=True))
    axes.tick_params(labelsize=8)
    tidy(axes)
