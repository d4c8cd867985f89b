"""Omega over the steps of a run, as JSON values."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from seal.interface.cues import EVERYWHERE, Cue, Omega, catalogue
from seal.records.folder import RunFolder
from seal.records.step import StepRecord
from seal.system.jsonl import Line, read_jsonl
from shelf.view.report.run import cue_steps


def omega(folder: RunFolder, steps: Sequence[StepRecord]) -> dict[str, Any]:
    """Each cue's text, its steps and the events that turned it on or off; then the cues that were never used."""
    known = catalogue()
    active = cue_steps(steps)
    events: dict[str, list[dict[str, Any]]] = {}
    for event in (asdict(event) for step in steps for event in step.events):
        scope = "" if event["category"] == EVERYWHERE else f"{event['category']}/"
        events.setdefault(f"{scope}{event['cue']}", []).append(event)
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
    """Return whether the run's cues were worded differently from this version's; None if its logs cannot tell."""
    path = folder.log("omega")
    values = [line.value for line in read_jsonl(path) if isinstance(line, Line)] if path.is_file() else []
    sent = {value.get("step"): value.get("omega") for value in values}
    for step in reversed(steps):
        before = sent.get(step.step - 1)
        if step.omega and before and before.get("version") == step.omega.version:
            try:
                return Omega.from_json(before).digest != step.omega.digest
            except ValueError:
                return True
    return None
