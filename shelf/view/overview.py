"""The overview of a run: its curves, validations, cues and what it does now, as JSON values."""

import math
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from seal.interface.cues import EVERYWHERE, Omega, catalogue
from seal.records.folder import RunFolder
from seal.records.mean import Mean
from seal.records.step import StepRecord, read_steps
from seal.records.trajectory import TrajectoryRecord
from seal.system.jsonl import BadLine, Line, read_jsonl
from shelf.view.index import VALIDATION, Index, kind_of
from shelf.view.lifts import Lifts
from shelf.view.runs import ViewedRun

if TYPE_CHECKING:
    from seal.statistics.intervals import Estimate

QUARTER = 4
"""The first and the last part of the steps that are compared: one in so many."""


class Steps:
    """The steps of a run, read again when their file has changed."""

    def __init__(self, folder: RunFolder):
        self._path = folder.steps
        self._seen: tuple[int, int] | None = None
        self._read: tuple[tuple[StepRecord, ...], tuple[BadLine, ...]] = ((), ())

    def get(self) -> tuple[tuple[StepRecord, ...], tuple[BadLine, ...]]:
        """The steps, ascending, and the bad lines; nothing before the first step."""
        try:
            stat = self._path.stat()
            seen = stat.st_size, stat.st_mtime_ns
            if seen != self._seen:
                self._read, self._seen = read_steps(self._path), seen
        except FileNotFoundError:
            self._read, self._seen = ((), ()), None
        return self._read

    @property
    def seen(self) -> tuple[int, int] | None:
        """Size and time of what was read last."""
        return self._seen


def overview(run: ViewedRun, steps: Sequence[StepRecord]) -> dict[str, Any]:
    """What the curves of one run show. Missing figures are null."""
    return {
        "name": run.name,
        "arm": run.arm,
        "path": str(run.folder.path),
        "step": [each.step for each in steps],
        "reward": [each.reward_mean for each in steps],
        "pass_share": [each.pass_share for each in steps],
        "trajectories": [each.trajectories for each in steps],
        "signal": [each.groups_with_spread for each in steps],
        "dropped": [each.trajectories_dropped for each in steps],
        "w": {name: [getattr(each.w, name) if each.w else None for each in steps] for name in ("mean", "min", "max")},
        "labels": _by_name(each.label_counts for each in steps),
        "rho": _by_name(each.rho for each in steps),
        "blames": _by_name(each.blames for each in steps),
        "stops": _by_name(each.stops for each in steps),
        "infra": _by_name(each.infra for each in steps),
        "seconds": _by_name(each.seconds for each in steps),
        "seal_seconds": [each.seal_seconds for each in steps],
        "logp_diff_max": [each.logp_diff_max for each in steps],
        "cues": cue_steps(steps),
    }


def _by_name(rows: Iterable[Mapping[str, float]]) -> dict[str, list[float | None]]:
    """One list per name over the steps; null where a step does not have it."""
    rows = list(rows)
    total: Counter[str] = Counter()
    for row in rows:
        total.update({name: abs(value) for name, value in row.items()})
    return {name: [row.get(name) for row in rows] for name, _ in total.most_common()}


def cue_steps(steps: Sequence[StepRecord]) -> dict[str, list[int]]:
    """The steps at which each cue was active, in order of appearance."""
    names = dict.fromkeys(cue for step in steps for cue in step.cues)
    return {cue: [step.step for step in steps if cue in step.cues] for cue in names}


def validation(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """Pass rates of tasks and of turns by validation and data source, each with a 95 % interval."""
    from seal.statistics.summary import informative, summarise_step  # loads scipy, which no other page waits for

    by_step: dict[int, list[TrajectoryRecord]] = {}
    rows = db.execute(
        "SELECT step, task, source, category, split, sample, score, labels, infra, turns, turns_passed "
        "FROM trajectory WHERE log = ? ORDER BY step, line",
        (VALIDATION,),
    )
    for row in rows:
        record = TrajectoryRecord(
            task_id=row["task"], data_source=row["source"], category=row["category"], split=row["split"],
            sample=row["sample"], score=row["score"], labels=tuple(orjson.loads(row["labels"])), infra=row["infra"],
            turns=row["turns"], turns_passed=row["turns_passed"], step=row["step"],
        )  # fmt: skip
        by_step.setdefault(row["step"], []).append(record)
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


def _estimate(found: "Estimate | None") -> dict[str, float] | None:
    return {"rate": found.rate, "low": found.low, "high": found.high} if found else None


def changes(steps: Sequence[StepRecord]) -> dict[str, Any] | None:
    """Each label's share of the turns in the first and the last quarter of the steps; None for fewer than two steps.

    The interval is 1.96 standard errors of the difference of two means over steps;
    null where a quarter has a single step.
    """
    if len(steps) < 2:
        return None
    size = max(1, len(steps) // QUARTER)
    parts = steps[:size], steps[-size:]
    labels = dict.fromkeys(label for part in parts for step in part for label in step.label_counts)
    rows = []
    for label in labels:
        first, last = (
            Mean.of([step.label_shares.get(label, 0.0) for step in part if step.label_counts]) for part in parts
        )
        if first is None or last is None:
            continue
        errors = first.standard_error, last.standard_error
        half = None if None in errors else 1.96 * math.hypot(*errors)
        rows.append({"label": label, "kind": kind_of(label), "first": first.value, "last": last.value, "half": half})
    rows.sort(key=lambda row: (row["last"] - row["first"]) * (-1 if row["kind"] == "met" else 1))
    return {"first": [each.step for each in parts[0]], "last": [each.step for each in parts[1]], "rows": rows}


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


def omega(folder: RunFolder, steps: Sequence[StepRecord]) -> dict[str, Any]:
    """Omega over the steps: each cue's text, its steps and the events that turned it on or off."""
    known = catalogue()
    active = cue_steps(steps)
    events = [event.to_json() for step in steps for event in step.events]
    names = dict.fromkeys([*active, *(_full_name(event) for event in events)])
    cues = []
    for full in names:
        scope, _, name = full.rpartition("/")
        cue = known.get(name)
        cues.append(
            {
                "name": name,
                "scope": scope or EVERYWHERE,
                "kind": cue.kind if cue else None,
                "label": cue.label if cue else None,
                "text": cue.text if cue else None,
                "compact": cue.compact if cue else None,
                "steps": active.get(full, []),
                "events": [event for event in events if _full_name(event) == full],
            }
        )
    return {
        "cues": cues,
        "step": [each.step for each in steps],
        "versions": [each.omega.version if each.omega else None for each in steps],
        "unused": [
            {"name": cue.name, "kind": cue.kind, "label": cue.label, "text": cue.text, "compact": cue.compact}
            for cue in known.values()
            if all(name.rpartition("/")[2] != cue.name for name in names)
        ],
        "other_wording": _other_wording(folder, steps),
    }


def _full_name(event: Mapping[str, Any]) -> str:
    return event["cue"] if event["category"] == EVERYWHERE else f"{event['category']}/{event['cue']}"


def _other_wording(folder: RunFolder, steps: Sequence[StepRecord]) -> bool | None:
    """Whether the run's cues were worded differently from this version's; None if its logs cannot tell."""
    sent = omegas(folder)
    for step in reversed(steps):
        before = sent.get(step.step - 1)
        if step.omega and before and before.get("version") == step.omega.version:
            try:
                return Omega.from_json(before).digest != step.omega.digest
            except ValueError:
                return True
    return None


def omegas(folder: RunFolder) -> dict[int, Mapping[str, Any]]:
    """The Omega after each step, which the next step was played with."""
    path = folder.log("omega")
    if not path.is_file():
        return {}
    found = {}
    for line in read_jsonl(path):
        if isinstance(line, Line) and isinstance(line.value.get("step"), int) and line.value.get("omega"):
            found[line.value["step"]] = line.value["omega"]
    return found


def stage(folder: RunFolder) -> dict[str, Any] | None:
    """The stage that the run logged last, for how many seconds, and whether it runs; None without a log."""
    line = _last_line(folder.stages)
    if line is None:
        return None
    since = line.get("time")
    return {
        "stage": line.get("stage"),
        "step": line.get("step"),
        "of": line.get("of"),
        "seconds": max(0.0, time.time() - since) if isinstance(since, int | float) else None,
        "running": _running(folder),
    }


def _running(folder: RunFolder) -> bool | None:
    """Whether a launcher of this machine works in the folder; None if its lock file does not say."""
    try:
        holder = orjson.loads((folder.path / "launcher.lock").read_bytes())
        pid, host = holder["pid"], holder["host"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if host != os.uname().nodename:
        return None
    return isinstance(pid, int) and Path(f"/proc/{pid}").exists()


def _last_line(path: Path) -> Mapping[str, Any] | None:
    """The last whole line of a small log that is an object; None if there is none."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 65536))
            lines = stream.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return None
    for raw in reversed(lines):
        try:
            value = orjson.loads(raw)
        except orjson.JSONDecodeError:
            continue
        if isinstance(value, dict):
            return value
    return None


def signature(index: Index, steps: Steps, lifts: Lifts) -> str:
    """Changes whenever what the pages show has changed, apart from the stage."""
    return f"{index.progress.changes}-{steps.seen}-{hash(lifts.seen)}"
