"""The answer to /evaluate: the release's public shape, and our own diagnosis."""

from __future__ import annotations

from collections.abc import Sequence

from env_service.answers import Evaluation
from env_service.environments.bfcl.catalog import Task
from seal import labels
from seal.diagnosis.evidence import TurnEvidence
from seal.diagnosis.rules import diagnose


def assessment(task: Task, turns: Sequence[TurnEvidence], taxonomy: str, valid: bool, ended: bool) -> Evaluation:
    """Return everything that is known about an episode.

    Keys of the public protocol: valid, accuracy, completed, turn_count, test_*,
    bfcl_progress*, trajectory_*. Ours: labels, diagnosis (in the given taxonomy),
    evidence, progress, turns, calls, errors, stop. Diagnoses and evidence stay
    dataclasses, which `encoding` writes. ValueError for an unknown taxonomy.
    """
    tags = [diagnosis.label for diagnosis in diagnose(turns, "release")]
    ours = diagnose(turns, taxonomy)
    calls = [call for turn in turns for call in turn.calls]
    scorable = [tag for turn, tag in zip(turns, tags, strict=True) if turn.expected_calls]
    reached = [turn.stop not in ("not_reached", "open") for turn in turns]
    cut = [turn.stop in ("length", "step_limit") for turn in turns]
    abstentions = [
        over and not unfinished and tag == labels.CORRECT_ABSTENTION
        for turn, tag, over, unfinished in zip(turns, tags, reached, cut, strict=True)
        if not turn.expected_calls
    ]
    passed, abstained = scorable.count(labels.PASS), sum(abstentions)
    progress = passed / len(scorable) if scorable else float(valid)
    stops = [turn.stop for turn in turns if turn.stop != "not_reached"]
    errors = sum(call.error is not None for call in calls)
    messages = sum(len(turn.actions) for turn in turns)
    return {
        "valid": valid,
        "accuracy": float(valid),
        "completed": ended,
        "turn_count": sum(reached),
        "test_category": task.id.rsplit("_", 1)[0],
        "test_id": task.id,
        "bfcl_progress": progress,
        "bfcl_progress_with_irrelevance": (passed + abstained) / len(turns),
        "bfcl_progress_info": {
            "per_turn_valid": [tag == labels.PASS for tag in scorable],
            "irrelevance_per_turn": abstentions,
            "failure_tags": tags,
            "passed_turns": passed,
            "scorable_turns": len(scorable),
            "passed_irrelevance_turns": abstained,
            "irrelevance_turns": len(abstentions),
            "terminated_early": ended and not all(reached),
        },
        "trajectory_messages": messages,
        "trajectory_calls": len(calls),
        "trajectory_errors": errors,
        "labels": [diagnosis.label for diagnosis in ours],
        "diagnosis": ours,
        "evidence": turns,
        "progress": progress,
        "turns": len(turns),
        "calls": len(calls),
        "errors": errors,
        "stop": stops[-1],
    }
