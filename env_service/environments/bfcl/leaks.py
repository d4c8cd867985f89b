"""The leak guard of one episode: what its task's reference knows and nobody has told yet."""

from __future__ import annotations

from env_service.environments.bfcl.catalog import Task, available_tools
from env_service.environments.bfcl.tools import parse_reference
from env_service.environments.bfcl.verifier import reference
from seal.interface.guard import LeakGuard
from seal.interface.secrets import Secrets, reference_secrets
from seal.interface.wording import PromptWording


def task_secrets(task: Task) -> Secrets:
    """What the reference of a task knows: its calls, results and states, and the tools that are withheld at first."""
    expected = reference(task)
    return reference_secrets(
        [parse_reference(call) for turn in task.reference for call in turn],
        [result for turn in expected for result in turn.results],
        [dict(task.initial_config), *(dict(turn.instances) for turn in expected)],
        [name for names in task.withheld.values() for name in names],
    )


def episode_guard(task: Task, mode: PromptWording) -> LeakGuard:
    """A guard that knows the task's secrets; public at the start are the documents of the tools visible then."""
    return LeakGuard(task_secrets(task), available_tools(task, 0), mode)
