"""The answer to /evaluate from the evidence of an episode."""

from collections.abc import Collection, Sequence

from env_service.answers import Evaluation
from seal.method import labels
from seal.method.diagnosis.evidence import TurnEvidence
from seal.method.diagnosis.rules import diagnose


def assessment(
    turns: Sequence[TurnEvidence], taxonomy: str, off: Collection[str], valid: bool, ended: bool
) -> Evaluation:
    """All that is known about an episode; off: labels that cannot be grounded. ValueError for an unknown taxonomy."""
    diagnoses = diagnose(turns, taxonomy, off)
    by_turn = {diagnosis.turn: diagnosis.label for diagnosis in diagnoses}
    wanted = [by_turn.get(each.turn) for each in turns if each.expected_calls or each.judged == "dialogue"]
    silent = [by_turn.get(each.turn) for each in turns if not each.expected_calls and each.judged == "turn"]
    passed = wanted.count(labels.PASS)
    calls = [call for turn in turns for call in turn.calls]
    return {
        "valid": valid,
        "completed": ended,
        "labels": [diagnosis.label for diagnosis in diagnoses],
        "diagnosis": diagnoses,
        "evidence": turns,
        "progress": passed / len(wanted) if wanted else float(valid),
        "turns": len(turns),
        "calls": len(calls),
        "errors": sum(call.error is not None for call in calls),
        "stop": [turn.stop for turn in turns if turn.stop != "not_reached"][-1],
        "progress_info": {
            "passed_turns": passed,
            "scorable_turns": len(wanted),
            "passed_irrelevance_turns": silent.count(labels.CORRECT_ABSTENTION),
            "irrelevance_turns": len(silent),
        },
    }
