"""Check whether a task is worth keeping: its reference passes, and fails without any one of its calls."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.tools import parse_reference
from seal.diagnosis.evidence import CallEvidence

Calls = Sequence[Sequence[tuple[str, Mapping[str, Any]]]]
"""Calls by turn, as (name, arguments)."""


def problem_of(task: Task) -> str | None:
    """Why a task is not sound, as a sentence without its id; None for a sound one.

    The official verifier passes the reference of a sound task, and fails it without any one of its calls.
    """
    turns = [[parse_reference(call) for call in calls] for calls in task.reference]
    if not any(turns):
        return "asks for no call"
    if not passes(task, turns):
        return "has a reference that the verifier fails"
    for turn, calls in enumerate(turns):
        # A turn with a reference in which nothing was called never passes: nothing to run for a single call.
        for index in range(len(calls) if len(calls) > 1 else 0):
            fewer = [made[:index] + made[index + 1 :] if number == turn else made for number, made in enumerate(turns)]
            if passes(task, fewer):
                return f"passes without its call {task.reference[turn][index]}"
    return None


def passes(task: Task, turns: Calls) -> bool:
    """Return whether the official verifier passes these calls; too few turns never pass."""
    scene = BfclEnvironment().task_scene(task, {})
    world, history, passed = scene.world(), [], True
    for turn, calls in enumerate(turns):
        # Two tools change the list that they receive: each call gets its own copy.
        results = [world.call(name, copy.deepcopy(arguments)).text for name, arguments in calls]
        made = zip(calls, results, strict=True)
        history.append([CallEvidence(*call, available=True, result=result) for call, result in made])
        if task.reference[turn]:  # as in the official runner a call may be made where none is due
            passed = passed and scene.check(world, turn, history).passed
    return len(history) == scene.turns and scene.verdict(history, passed)
