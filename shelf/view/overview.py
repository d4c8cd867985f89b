"""The overview of a run: its curves, validations and failures, and what it does now, as JSON values."""

import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from seal.interface.cues import catalogue
from seal.records.folder import RunFolder
from seal.records.step import StepRecord
from seal.records.trajectory import TrajectoryRecord
from seal.system.jsonl import Line, read_jsonl
from shelf.view.index import VALIDATION, kind_of
from shelf.view.report.run import Change, cue_steps, quarters
from shelf.view.runs import ViewedRun

if TYPE_CHECKING:
    from seal.statistics.intervals import Estimate

_FIGURES = {
    "step": "step",
    "reward": "reward_mean",
    "pass_share": "pass_share",
    "trajectories": "trajectories",
    "signal": "groups_with_spread",
    "dropped": "trajectories_dropped",
    "seal_seconds": "seal_seconds",
    "logp_diff_max": "logp_diff_max",
}
_BY_NAME = {
    "labels": "label_counts",
    "rho": "rho",
    "blames": "blames",
    "stops": "stops",
    "infra": "infra",
    "seconds": "seconds",
}


def overview(run: ViewedRun, steps: Sequence[StepRecord]) -> dict[str, Any]:
    """What the curves of one run show: a list over the steps for each figure. Missing figures are null."""
    return {
        "name": run.name,
        "arm": run.arm,
        "path": str(run.folder.path),
        **{name: [getattr(step, field) for step in steps] for name, field in _FIGURES.items()},
        **{name: _by_name(getattr(step, field) for step in steps) for name, field in _BY_NAME.items()},
        "w": {name: [getattr(step.w, name) if step.w else None for step in steps] for name in ("mean", "min", "max")},
        "cues": cue_steps(steps),
    }


def _by_name(rows: Iterable[Mapping[str, float]]) -> dict[str, list[float | None]]:
    """One list per name over the steps, the largest sum first; null where a step does not have it."""
    rows = list(rows)
    total: Counter[str] = Counter()
    for row in rows:
        total.update({name: abs(value) for name, value in row.items()})
    return {name: [row.get(name) for row in rows] for name, _ in total.most_common()}


def validation(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """Pass rates of tasks and of turns by validation and data source, each with a 95 % interval."""
    from seal.statistics.summary import informative, summarise_step  # loads scipy, which no other page waits for

    by_step: dict[int, list[TrajectoryRecord]] = {}
    rows = db.execute(
        "SELECT task AS task_id, source AS data_source, category, split, sample, score, labels, infra, turns, "
        "turns_passed, step FROM trajectory WHERE log = ? ORDER BY step, line",
        (VALIDATION,),
    )
    for row in rows:
        record = TrajectoryRecord(**{**row, "labels": tuple(orjson.loads(row["labels"]))})
        by_step.setdefault(record.step, []).append(record)
    return [
        {
            "step": row.step,
            "name": row.name,
            "average": row.is_average,
            "prefix": row.prefix,
            "tasks": row.tasks,
            "passed": row.passed,
            "scored": row.scored,
            "infra": row.infra,
            "rate": _estimate(row.rate),
            "turn_rate": _estimate(row.turn_rate),
        }
        for records in by_step.values()
        for row in informative(summarise_step(records))
    ]


def _estimate(rate: "Estimate | None") -> dict[str, float] | None:
    return {"rate": rate.rate, "low": rate.low, "high": rate.high} if rate else None


def changes(steps: Sequence[StepRecord]) -> dict[str, Any] | None:
    """Each label's share of the turns in the first and the last quarter of the steps; None for fewer than two steps.

    half: 1.96 standard errors of the difference of two means over steps;
    null where a quarter has a single step.
    """
    parts = quarters(steps)
    if parts is None:
        return None
    rows = []
    for label in dict.fromkeys(label for part in parts for step in part for label in step.label_counts):
        means = parts.of(lambda step, label=label: step.label_shares.get(label, 0.0) if step.label_counts else None)
        if change := Change.between(*means):
            half = None if change.standard_error is None else 1.96 * change.standard_error
            row = {"label": label, "kind": kind_of(label), "first": change.before, "last": change.after, "half": half}
            rows.append(row)
    rows.sort(key=lambda row: (row["last"] - row["first"]) * (-1 if row["kind"] == "met" else 1))
    first, last = ([step.step for step in part] for part in parts)
    return {"first": first, "last": last, "rows": rows}


def reached(steps: Sequence[StepRecord]) -> list[dict[str, Any]]:
    """By failure label: its turns, and how many fell in a step at which a cue for the label was active."""
    known = catalogue()
    turns: Counter[str] = Counter()
    with_cue: Counter[str] = Counter()
    for step in steps:
        names = {cue.rpartition("/")[2] for cue in step.cues}
        helped = {known[name].label for name in names if name in known}
        for label, count in step.label_counts.items():
            if kind_of(label) == "failed":
                turns[label] += count
                with_cue[label] += count if label in helped else 0
    has_cue = {cue.label for cue in known.values()}
    return [
        {"label": label, "turns": count, "with_cue": with_cue[label], "has_cue": label in has_cue}
        for label, count in turns.most_common()
        if count
    ]


def last_stage(folder: RunFolder) -> Mapping[str, Any] | None:
    """The last usable line of the log of stages; None without one."""
    lines = read_jsonl(folder.stages) if folder.stages.is_file() else ()
    values = [line.value for line in lines if isinstance(line, Line)]
    return values[-1] if values else None


def stage(folder: RunFolder, line: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The stage of a line of the log: since how many seconds, and whether the run goes on; None without a line."""
    if line is None:
        return None
    since = line.get("time")
    seconds = max(0.0, time.time() - since) if isinstance(since, int | float) else None
    return {**{name: line.get(name) for name in ("stage", "step", "of")}, "seconds": seconds, "running": _runs(folder)}


def _runs(folder: RunFolder) -> bool | None:
    """Whether a launcher of this machine works in the folder; None if its lock file does not say."""
    try:
        holder = orjson.loads((folder.path / "launcher.lock").read_bytes())
        pid, host = holder["pid"], holder["host"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if host != os.uname().nodename:
        return None
    return isinstance(pid, int) and Path(f"/proc/{pid}").exists()
