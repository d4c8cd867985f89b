"""References as dialogues, played against the environment's episodes, so that lessons cannot drift from rollouts."""

from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.environment import BfclEnvironment, open_episode
from seal.interface.cues import Omega
from shelf.authoring.runs import dialogue, played, said

PROMPT_MODE = "compact"
"""The prompt mode of the small policy."""
_ENVIRONMENT = BfclEnvironment()
_MESSAGES = 1000
"""The most messages with calls per turn."""


def reference_dialogue(
    task: Task, mode: str = PROMPT_MODE, omega: Omega | None = None
) -> tuple[dict[str, str], ...] | None:
    """The messages of the episode in which every call is the reference's; None if it does not pass.

    omega: as in training; None for an evaluation's episode.
    """
    side = {"split": "val"} if omega is None else {"split": "train", "omega": omega.to_json()}
    messages = said(_ENVIRONMENT, _ENVIRONMENT.calls(task), mode)
    answers = played(open_episode(task, {**side, "tool_prompt_mode": mode, "max_steps": _MESSAGES}), messages)
    return tuple(dialogue(messages, answers)) if answers[-1]["valid"] else None
