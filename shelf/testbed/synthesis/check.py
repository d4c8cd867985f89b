"""Problems of the tasks of a file, each as one sentence."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.splits import side_of
from env_service.environments.bfcl.task_file import MadeTask, identity_problems
from seal.system.files import json_hash
from shelf.testbed.synthesis.verify import problem_of


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
    """Which simulator's initial state belongs to a task of the evaluation side too, None if no one's does."""
    _, states = _evaluation_side()
    for name, state in config.items():
        if state and (owner := states.get(json_hash([name, state]))):
            return f"the initial {name} of {owner}"
    return None


@cache
def _evaluation_side() -> tuple[dict[str, str], dict[str, str]]:
    """Messages and hashes of initial states of the evaluation side, each with a task that has it."""
    texts: dict[str, str] = {}
    states: dict[str, str] = {}
    for task in load_tasks().values():
        if side_of(task.id) == "eval":
            texts |= {text: task.id for text in task.users if text}
            states |= {json_hash([name, state]): task.id for name, state in task.initial_config.items() if state}
    return texts, states
