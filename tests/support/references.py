"""References as dialogues."""

from env_service.environments.bfcl.catalog import Task
from seal.interface.cues import Omega
from shelf.testbed.policy.dialogue import Transcript, parsed, play


def play_reference(task: Task, omega: Omega | None = None) -> Transcript:
    """The dialogue in which every call is the reference's."""
    transcript = play(task, parsed(task.reference), omega)
    assert transcript is not None, f"the reference of {task.id} does not pass its own episode"
    return transcript
