"""One picture of a run: reward, validation, labels, rho, cues, time."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import fill

import pandas as pd
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seal.method.labels import PASS
from shelf.statistics.log import MET
from shelf.statistics.summary import Summary
from shelf.statistics.tables import percent
from shelf.view.plots import colours, draw_rates, tidy
from shelf.view.report.run import Quarters, Run, teaching

rcParams["text.parse_math"] = False  # a name may hold dollar signs
STAGES = ("#0072B2", "#D55E00", "#CC79A7", "#E69F00")
"""The colours of the longest stages of a step."""


def draw(run: Run, rows: Sequence[Summary], turns: bool, headline: str, path: Path) -> None:
    """Draw a run as a PNG file with six panels over steps; panels without data say so.

    rows: its validations. turns: as for `draw_rates`.
    """
    figure = Figure(figsize=(13, 10.5), layout="constrained")
    figure.suptitle(fill(headline, 110), x=0.01, ha="left", fontsize=13, fontweight="bold")
    panels = figure.subplots(3, 2)
    _reward(panels[0, 0], run)
    _validation(panels[0, 1], rows, turns)
    _labels(panels[1, 0], run)
    (_teaching if teaching(run.steps) else _rho)(panels[1, 1], run)
    _cues(panels[2, 0], run)
    _time(panels[2, 1], run)
    if len(run.steps) > 1:
        steps = [run.steps[0].step, run.steps[-1].step, *(row.step for row in rows)]
        for axes in panels.flat:
            axes.set_xlim(min(steps) - 0.5, max(steps) + 0.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def _reward(axes: Axes, run: Run) -> None:
    _title(axes, "Training reward (mean per step)")
    points = [(step.step, step.reward_mean) for step in run.steps if step.reward_mean is not None]
    if not points:
        return _empty(axes, "no training step logged")
    steps, rewards = zip(*points, strict=True)
    axes.plot(steps, rewards, color="#9DBBD6", linewidth=1, marker="o", markersize=2.5)
    window = max(1, len(steps) // 8)
    if window > 1:
        smooth = pd.Series(rewards).rolling(2 * window + 1, center=True, min_periods=1).mean()
        axes.plot(steps, smooth, color="#0072B2", linewidth=2, label=f"mean of {2 * window + 1} steps")
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    if parts := Quarters.split(run.steps):
        for part, mean in zip(parts, parts.of(lambda step: step.reward_mean), strict=True):
            if mean is None:
                continue
            left, right = part[0].step - 0.4, part[-1].step + 0.4
            error = mean.standard_error or 0.0
            band = mean.value - error, mean.value + error
            axes.fill_between([left, right], *band, color="#D55E00", alpha=0.2, linewidth=0)
            axes.hlines(mean.value, left, right, color="#D55E00", linewidth=2)
            style = {"ha": "center", "va": "top", "fontsize": 9, "color": "#A34600"}
            axes.text((left + right) / 2, 0.97, str(mean), transform=axes.get_xaxis_transform(), **style)
    low, high = min(rewards), max(rewards)
    axes.set_ylim(max(0.0, low - 0.1), high + 0.2 * (high - low) + 0.05)
    tidy(axes)


def _validation(axes: Axes, rows: Sequence[Summary], turns: bool) -> None:
    _title(axes, "Validation without cues (average with 95% interval)")
    if not rows:
        return _empty(axes, "no validation logged")
    draw_rates(axes, rows, turns)
    top = axes.get_ylim()[1]
    axes.set_ylim(0, top * 1.1)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _labels(axes: Axes, run: Run) -> None:
    _title(axes, "Labels, share of turns in training")
    labelled = [step for step in run.steps if step.label_counts]
    if not labelled:
        return _empty(axes, "no labels logged")
    order = sorted(run.labels, key=lambda label: (label != PASS, label not in MET))
    steps = [step.step for step in labelled]
    layers = [[100 * step.label_shares.get(label, 0.0) for step in labelled] for label in order]
    if len(steps) == 1:
        steps, layers = [steps[0] - 0.4, steps[0] + 0.4], [layer * 2 for layer in layers]
    axes.stackplot(steps, layers, colors=[colours(run.labels)[label] for label in order], labels=order, linewidth=0)
    axes.set_ylim(0, 100)
    axes.set_ylabel("%")
    handles, names = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], names[::-1], fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.spines[["top", "right"]].set_visible(False)


def _rho(axes: Axes, run: Run) -> None:
    _title(axes, "Utility rho by label; weight w (mean and range, grey)")
    weighed = [step for step in run.steps if step.rho]
    if not weighed:
        return _empty(axes, "no weights logged")
    steps = [step.step for step in weighed]
    w = pd.DataFrame([asdict(step.w) | {"step": step.step} for step in weighed if step.w])
    if len(w):
        axes.fill_between(w["step"], w["min"], w["max"], color="#BBBBBB", alpha=0.35, linewidth=0)
        axes.plot(w["step"], w["mean"], color="#666666", linewidth=1.6, linestyle="--")
    ends = {label: round(weighed[-1].rho[label], 2) for label in run.labels if label in weighed[-1].rho}
    drawn = colours(run.labels)
    for label in ends:
        axes.plot(steps, [step.rho.get(label, float("nan")) for step in weighed], color=drawn[label], linewidth=1.8)
    # The lines are named at their right end, apart from each other if they would overlap.
    low, high = axes.get_ylim()
    gap, last = (high - low) / 14, float("-inf")
    beside = {"textcoords": axes.get_yaxis_transform(), "va": "center", "fontsize": 8, "annotation_clip": False}
    for label, value in sorted(ends.items(), key=lambda end: end[1]):
        last = max(value, last + gap)
        axes.annotate(label, (steps[-1], value), xytext=(1.02, last), color=drawn[label], **beside)
    tidy(axes)


def _teaching(axes: Axes, run: Run) -> None:
    window = max(1, len(run.steps) // 4)
    _title(axes, f"The teacher: lift of its cues, and reward without them (means of {window} steps)")
    rows = [row | {"step": step.step} for step in run.steps for row in teaching([step]).values() if row["prompts"]]
    lifts = pd.DataFrame(rows, columns=["step", "lift", "prompts"]).eval("lift = lift * prompts").groupby("step").sum()
    sums = lifts.reindex([step.step for step in run.steps]).fillna(0).rolling(window, min_periods=1).sum()
    axes.plot(sums["lift"] / sums["prompts"], color="#D55E00", linewidth=2, label="lift of the cues")
    plain = pd.Series(run.rollouts.plain, dtype=float).rolling(window, min_periods=1).mean()
    axes.plot(plain, color="#0072B2", linewidth=2, label="reward, no cues")
    axes.axhline(0, color="#888888", linewidth=0.8)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    tidy(axes)


def _cues(axes: Axes, run: Run) -> None:
    _title(axes, "Active cues of the interface Ω (training only)")
    if not run.cues:
        return _empty(axes, "no cue was active")
    names = list(run.cues)
    for row, name in enumerate(names):
        axes.broken_barh([(step - 0.5, 1.0) for step in run.cues[name]], (row - 0.32, 0.64), color="#0072B2")
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(max(len(names), 4) - 0.4, -0.6)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _time(axes: Axes, run: Run) -> None:
    share = run.seal_share
    own = "" if share is None else f"; SEAL's own part {percent(share, 2)} %"
    _title(axes, f"Seconds per step{own}")
    timed = [step for step in run.steps if step.seconds]
    if not timed:
        return _empty(axes, "no times logged")
    steps = [step.step for step in timed]
    seconds = pd.DataFrame([step.seconds for step in timed], index=steps).fillna(0.0)
    # A validation takes as long as many steps, and would flatten all others.
    seconds = seconds.drop(columns=["step", "testing"], errors="ignore")
    axes.plot(steps, [step.total_seconds for step in timed], color="#222222", linewidth=2, label="whole step")
    for stage, line in zip(seconds.sum().nlargest(4).index, STAGES, strict=False):
        axes.plot(seconds[stage], color=line, linewidth=1.3, label=stage)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("s")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    tidy(axes)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("training step", fontsize=9)
    axes.tick_params(labelsize=8.5)


def _empty(axes: Axes, reason: str) -> None:
    axes.text(0.5, 0.5, reason, ha="center", va="center", transform=axes.transAxes, color="#888888")
    axes.set_axis_off()
