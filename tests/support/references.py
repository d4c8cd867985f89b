"""References as dialogues."""

from env_service.environments.bfcl.catalog import Task
from seal.method.interface.cues import Omega
from shelf.testbed.policy.dialogue import reference_dialogue


def play_reference(task: Task, omega: Omega | None = None) -> tuple[dict[str, str], ...]:
    """The messages of the dialogue in which every call is the reference's."""
    messages = reference_dialogue(task, omega=omega)
    assert messages is not None, f"the reference of {task.id} does not pass its own episode"
    return messages
