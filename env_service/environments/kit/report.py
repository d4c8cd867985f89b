"""The answer to /evaluate from the evidence of an episode, and whose fault each failed turn is."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from env_service.answers import Evaluation
from env_service.environments.kit.tasks import ToolTask
from seal import labels
from seal.diagnosis.evidence import Blame, CallEvidence, TurnEvidence
from seal.diagnosis.rules import diagnose

if TYPE_CHECKING:
    from env_service.environments.kit.environment import ToolEnvironment

NOT_RUN = ("unavailable", "deadline")
"""Errors of calls that never reached the world."""


def assessment(
    turns: Sequence[TurnEvidence], taxonomy: str, off: Collection[str], valid: bool, ended: bool
) -> Evaluation:
    """Everything that is known about an episode. off: labels that the environment cannot ground."""
    found = diagnose(turns, taxonomy, off)
    by_turn = {diagnosis.turn: diagnosis.label for diagnosis in found}
    wanted = [turn.turn for turn in turns if turn.expected_calls]
    silent = [turn.turn for turn in turns if not turn.expected_calls]
    passed = sum(by_turn.get(turn) == labels.PASS for turn in wanted)
    calls = [call for turn in turns for call in turn.calls]
    reached = [turn.stop for turn in turns if turn.stop != "not_reached"]
    return {
        "valid": valid,
        "completed": ended,
        "labels": [diagnosis.label for diagnosis in found],
        "diagnosis": found,
        "evidence": turns,
        "progress": passed / len(wanted) if wanted else float(valid),
        "turns": len(turns),
        "calls": len(calls),
        "errors": sum(call.error is not None for call in calls),
        "stop": reached[-1],
        "progress_info": {
            "passed_turns": passed,
            "scorable_turns": len(wanted),
            "passed_irrelevance_turns": sum(by_turn.get(turn) == labels.CORRECT_ABSTENTION for turn in silent),
            "irrelevance_turns": len(silent),
        },
    }


def blames(
    environment: ToolEnvironment, task: ToolTask, turns: Sequence[Sequence[CallEvidence]], failed: Sequence[bool]
) -> list[Blame | None]:
    """Whose fault each turn is, None where it did not fail.

    A failed turn after another failed one is played again from the reference's state before
    it; when it passes there, its failure was inherited.
    """
    found: list[Blame | None] = []
    for index, calls in enumerate(turns):
        if not task.reference[index]:
            found.append("own" if calls else None)
        elif not failed[index]:
            found.append(None)
        else:
            inherited = "own" in found and _passes(environment, task, index, calls)
            found.append("inherited" if inherited else "own")
    return found


def _passes(environment: ToolEnvironment, task: ToolTask, index: int, calls: Sequence[CallEvidence]) -> bool:
    world = environment.world(task)
    for reference in task.reference[:index]:
        for name, arguments in reference:
            world.call(name, dict(arguments))
    for call in calls:
        if call.error not in NOT_RUN and not (environment.strict and call.violations):
            world.call(call.name, dict(call.arguments))
    return world.check(index, calls).passed
