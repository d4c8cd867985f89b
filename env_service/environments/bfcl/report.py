"""The extra keys in the public release's answer to /evaluate, counted by its taxonomy."""

from env_service.answers import Evaluation
from seal.method import labels
from seal.method.diagnosis.rules import diagnose


def with_release_figures(task_id: str, evaluation: Evaluation) -> Evaluation:
    """The answer with the release's keys: accuracy, turn_count, test_*, bfcl_progress*, trajectory_*.

    progress and progress_info also count by the release's taxonomy, in which a turn without a
    reference is an abstention even if a call in it could not be read.
    """
    turns, valid = evaluation["evidence"], evaluation["valid"]
    tags = [diagnosis.label for diagnosis in diagnose(turns, "release")]
    scorable = [tag for turn, tag in zip(turns, tags, strict=True) if turn.expected_calls]
    reached = [turn.stop not in ("not_reached", "open") for turn in turns]
    abstentions = [
        turn.stop not in ("not_reached", "open", "length", "step_limit") and tag == labels.CORRECT_ABSTENTION
        for turn, tag in zip(turns, tags, strict=True)
        if not turn.expected_calls
    ]
    passed, abstained = scorable.count(labels.PASS), sum(abstentions)
    progress = passed / len(scorable) if scorable else float(valid)
    counts = {
        "passed_turns": passed,
        "scorable_turns": len(scorable),
        "passed_irrelevance_turns": abstained,
        "irrelevance_turns": len(abstentions),
    }
    return {
        **evaluation,
        "progress": progress,
        "progress_info": counts,
        "accuracy": float(valid),
        "turn_count": sum(reached),
        "test_category": task_id.rsplit("_", 1)[0],
        "test_id": task_id,
        "bfcl_progress": progress,
        "bfcl_progress_with_irrelevance": (passed + abstained) / len(turns),
        "bfcl_progress_info": {
            **counts,
            "per_turn_valid": [tag == labels.PASS for tag in scorable],
            "irrelevance_per_turn": abstentions,
            "failure_tags": tags,
            "terminated_early": evaluation["completed"] and not all(reached),
        },
        "trajectory_messages": sum(len(turn.actions) for turn in turns),
        "trajectory_calls": evaluation["calls"],
        "trajectory_errors": evaluation["errors"],
    }
