"""The overview of a run: its curves, validations, failures, cues and current stage, as JSON values."""

import platform
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson
from scipy import stats

from seal.method.interface.cues import EVERYWHERE, Cue, Omega, catalogue
from seal.method.labels import EXCLUDED, SYNONYMS
from seal.records.folder import RunFolder
from seal.records.step import StepRecord
from seal.records.trajectory import TrajectoryRecord
from seal.system.grouping import grouped
from seal.system.lock import Holder
from shelf.statistics.log import MET, Log, planned_steps, values
from shelf.statistics.summary import informative, summarise
from shelf.view.index import VALIDATION
from shelf.view.report.run import Change, Quarters, cue_of, cue_steps
from shelf.view.runs import ViewedRun

_FIGURES = {
    "step": "step",
    "total_seconds": "total_seconds",
    "reward": "reward_mean",
    "signal": "groups_with_spread",
    "seal_seconds": "seal_seconds",
    "logp_diff_max": "logp_diff_max",
}
_BY_NAME = {"labels": "label_counts"} | {name: name for name in ("rho", "stops", "infra", "seconds")}


def overview(run: ViewedRun, steps: Sequence[StepRecord]) -> dict[str, Any]:
    """The data of one run's curves: a list over the steps for each figure. Missing figures are null."""
    return {
        "name": run.name,
        "arm": run.arm,
        **{name: [getattr(step, field) for step in steps] for name, field in _FIGURES.items()},
        **{name: _by_name(getattr(step, field) for step in steps) for name, field in _BY_NAME.items()},
        "w": {name: [getattr(step.w, name) if step.w else None for step in steps] for name in ("mean", "min", "max")},
        "cues": cue_steps(steps),
    }


def _by_name(rows: Iterable[Mapping[str, float]]) -> dict[str, list[float | None]]:
    """One list per name over the steps, the largest sum first; null if a step does not have the name."""
    rows = list(rows)
    total: Counter[str] = Counter()
    for row in rows:
        total.update({name: abs(value) for name, value in row.items()})
    return {name: [row.get(name) for row in rows] for name, _ in total.most_common()}


def validated(db: sqlite3.Connection) -> list[TrajectoryRecord]:
    """The trajectories of the validations, by step, without their messages."""
    rows = db.execute(
        "SELECT task AS task_id, source AS data_source, category, split, sample, score, labels, infra, turns, "
        "turns_passed, tokens, cluster, step FROM trajectory WHERE log = ? ORDER BY step, line",
        (VALIDATION,),
    )
    return [TrajectoryRecord(**{**row, "labels": tuple(orjson.loads(row["labels"]))}) for row in rows]


def validation(records: Sequence[TrajectoryRecord]) -> list[dict[str, Any]]:
    """Pass rates of tasks and of turns by validation and data source, each with a 95 % interval."""
    return [
        {"step": row.step, "name": row.name}
        | {name: rate and rate._asdict() for name, rate in (("rate", row.rate), ("turn_rate", row.turn_rate))}
        for row in informative(summarise(Log(tuple(records))))
    ]


def changes(steps: Sequence[StepRecord]) -> dict[str, Any] | None:
    """Each label's share of the turns in the first and the last quarter of the steps; None for fewer than two steps.

    half: half of Student's 95 % interval of the difference of two means over steps; null if a quarter has one step.
    """
    parts = Quarters.split(steps)
    if parts is None:
        return None
    rows, reach = [], float(stats.t.ppf(0.975, 2 * len(parts.first) - 2))
    for label in dict.fromkeys(label for part in parts for step in part for label in step.label_counts):
        if change := Change.between(*parts.share(label)):
            half = None if change.standard_error is None else reach * change.standard_error
            rows.append({"label": label, "first": change.before, "last": change.after, "half": half})
    rows.sort(key=lambda row: (row["last"] - row["first"]) * (-1 if row["label"] in MET else 1))
    first, last = ([step.step for step in part] for part in parts)
    return {"first": first, "last": last, "rows": rows}


def reached(steps: Sequence[StepRecord]) -> list[dict[str, Any]]:
    """By failure label: its turns, and how many of them occurred at a step with an active cue for the label."""
    known = catalogue()
    turns: Counter[str] = Counter()
    with_cue: Counter[str] = Counter()
    for step in steps:
        names = {cue.rpartition("/")[2] for cue in step.cues}
        helped = {known[name].label for name in names if name in known}
        for label, count in step.label_counts.items():
            if label not in MET | EXCLUDED:
                turns[label] += count
                with_cue[label] += count if SYNONYMS.get(label, label) in helped else 0
    has_cue = {cue.label for cue in known.values()}
    return [
        {"label": label, "turns": count, "with_cue": with_cue[label], "has_cue": SYNONYMS.get(label, label) in has_cue}
        for label, count in turns.most_common()
        if count
    ]


def omega(folder: RunFolder, steps: Sequence[StepRecord]) -> dict[str, Any]:
    """Each cue's text, its steps and the events that turned it on or off; last, the cues that were never used."""
    known = catalogue()
    active = cue_steps(steps)
    events = grouped((cue_of(event), asdict(event)) for step in steps for event in step.events)
    cues = []
    for full in dict.fromkeys([*active, *events]):
        scope, _, name = full.rpartition("/")
        record = _described(name, known.get(name)) | {"scope": scope or EVERYWHERE}
        cues.append(record | {"steps": active.get(full, ()), "events": events.get(full, [])})
    used = {cue["name"] for cue in cues}
    return {
        "cues": cues,
        "step": [step.step for step in steps],
        "versions": [step.omega.version if step.omega else None for step in steps],
        "unused": [_described(name, cue) for name, cue in known.items() if name not in used],
        "other_wording": _other_wording(folder, steps),
    }


def _described(name: str, cue: Cue | None) -> dict[str, Any]:
    fields = ("kind", "label", "text", "compact")
    return {"name": name, **{field: getattr(cue, field) if cue else None for field in fields}}


def _other_wording(folder: RunFolder, steps: Sequence[StepRecord]) -> bool | None:
    """Return whether the run's cues were worded differently from this version's; None if its logs do not show it."""
    sent = {value.get("step"): value.get("omega") for value in values(folder.log("omega"))}
    for step in reversed(steps):
        before = sent.get(step.step - 1)
        if step.omega and isinstance(before, Mapping) and before.get("version") == step.omega.version:
            try:
                return Omega.from_json(before).digest != step.omega.digest
            except ValueError:
                return True
    return None


def stage(folder: RunFolder, begun: Sequence[Mapping[str, Any]], last: int | None) -> dict[str, Any] | None:
    """The last stage that began, the seconds since then, the planned steps, and whether the run continues or has
    finished; None before any stage. last: the last logged step."""
    if not begun:
        return None
    line, planned = begun[-1], planned_steps(begun)
    since = line.get("time")
    seconds = max(0.0, time.time() - since) if isinstance(since, int | float) else None
    holder = Holder.of(folder.lock)  # one on another machine cannot be asked
    running = None if holder is None or holder.host != platform.node() else not holder.gone
    return {
        **{name: line.get(name) for name in ("stage", "step", "of")},
        "planned": planned,
        "seconds": seconds,
        "running": running,
        "finished": not running and last is not None and last == planned,
    }
