"""Redo the diagnosis of a log offline and report what changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from seal.diagnosis.evidence import TurnEvidence
from seal.diagnosis.rules import Diagnosis, diagnose


@dataclass(frozen=True)
class Change:
    """One turn whose label changes: its place, the old label ("" when it had none) and the new one."""

    line: int
    task_id: str
    turn: int
    before: str
    after: str
    reason: str


@dataclass(frozen=True)
class Relabelled:
    """A log's new diagnosis: trajectories and turns seen, label counts, and the changes."""

    trajectories: int
    turns: int
    counts: Counter[str]
    changes: tuple[Change, ...]


def relabel_log(lines: Iterable[str], taxonomy: str = "paper") -> Relabelled:
    """Diagnose every line of a log again.

    A line is a JSON object with "evidence" (TurnEvidence objects) and "labels" (as they
    were logged), and "task_id" if it is known. Blank lines are skipped. Raises ValueError
    with the line's number when it cannot be read, and for an unknown taxonomy.
    """
    trajectories = turns = 0
    counts: Counter[str] = Counter()
    changes: list[Change] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        task_id, before, now = _read(line, number, taxonomy)
        trajectories += 1
        turns += len(now)
        counts.update(diagnosis.label for diagnosis in now)
        after = {diagnosis.turn: diagnosis for diagnosis in now}
        for turn in sorted({*before, *after}):
            old = before.get(turn, "")
            new = after[turn].label if turn in after else ""
            if old != new:
                reason = after[turn].reason if turn in after else "the turn did not take place"
                changes.append(Change(number, task_id, turn, old, new, reason))
    return Relabelled(trajectories, turns, counts, tuple(changes))


def _read(line: str, number: int, taxonomy: str) -> tuple[str, dict[int, str], tuple[Diagnosis, ...]]:
    try:
        row = json.loads(line)
        evidence = [TurnEvidence.from_json(turn) for turn in row["evidence"]]
        before = dict(enumerate(map(str, row["labels"])))
        task_id = str(row.get("task_id", ""))
    except KeyError as error:
        raise ValueError(f"line {number}: the key {error} is missing; log episodes with evidence and labels") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"line {number}: not a log line of an episode: {error}") from None
    return task_id, before, diagnose(evidence, taxonomy)
