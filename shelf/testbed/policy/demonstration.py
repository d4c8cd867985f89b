"""The references of training tasks as the messages that a policy would write."""

import functools

from env_service.environments.bfcl.environment import BfclEnvironment
from seal.system.paths import HOME
from shelf.authoring.runs import said


@functools.cache
def _environment() -> BfclEnvironment:
    environment = BfclEnvironment()
    environment.load_task_file(str(HOME / "data" / "test_bed" / "train.jsonl"))
    return environment


def reference_texts(task_id: str, turns: int, mode: str) -> tuple[str, ...]:
    """The messages of a task's first turns, all if not positive; one call in each message."""
    calls = _environment().reference(task_id)
    return said(_environment(), calls[: turns if turns > 0 else None], mode)
