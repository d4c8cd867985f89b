"""Checks whether tasks are sound: references pass, fail without any one call, and share nothing with evaluation."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from env_service.environments.bfcl.catalog import Task, load_tasks
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.splits import side_of
from env_service.environments.bfcl.task_file import MadeTask, identity_problems
from env_service.environments.bfcl.tools import parse_reference
from seal.method.diagnosis.evidence import CallEvidence
from seal.system.files import json_hash

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
        # A turn with a reference never passes without calls, so a turn with a single call needs no run.
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


def problems(tasks: Sequence[MadeTask]) -> Iterator[str]:
    """Wrong ids, repeated tasks, tasks that the verifier does not accept, and material of evaluation tasks."""
    yield from identity_problems(tasks)
    asked: dict[tuple[str | None, ...], str] = {}
    for task in tasks:
        first = asked.setdefault(task.users, task.id)
        if first != task.id:
            yield f"{task.id} has the messages of {first}: remove one of the two."
        if task.id == task.content_id() and (problem := problem_of(task.task)):
            yield f"{task.id} {problem}: remove it."
        if source := evaluation_material(task):
            yield f"{task.id} has {source}: tasks must not be made from the evaluation side; remove it."


def evaluation_material(task: MadeTask) -> str | None:
    """Return the material that a task shares with an evaluation task of the benchmark; None without any."""
    texts, _ = _evaluation_side()
    for text in filter(None, task.users):
        if text in texts:
            return f"a message of {texts[text]}"
    return evaluation_state(task.config)


def evaluation_state(config: Mapping[str, Any]) -> str | None:
    """The simulator whose initial state also belongs to a task of the evaluation side, None if there is none."""
    _, states = _evaluation_side()
    for name, state in config.items():
        if state and (owner := states.get(json_hash([name, state]))):
            return f"the initial {name} of {owner}"
    return None


@cache
def _evaluation_side() -> tuple[dict[str, str], dict[str, str]]:
    """The messages and the hashes of initial states on the evaluation side, each with a task that has it."""
    texts: dict[str, str] = {}
    states: dict[str, str] = {}
    for task in load_tasks().values():
        if side_of(task.id) == "eval":
            texts |= {text: task.id for text in task.users if text}
            states |= {json_hash([name, state]): task.id for name, state in task.initial_config.items() if state}
    return texts, states
