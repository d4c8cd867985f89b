"""References as dialogues, played against the environment's episodes, so that lessons cannot drift from rollouts."""

import random
from typing import NamedTuple

from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.environment import BfclEnvironment
from seal.method.interface.cues import Omega
from seal.method.interface.evolve import cues_in_use, permanent_cues
from seal.settings.interface import EvolveSettings
from shelf.authoring.runs import dialogue, open_episode, played, said

PROMPT_MODE = "compact"
"""The prompt mode of the small policy."""
_ENVIRONMENT = BfclEnvironment()
_MESSAGES = 1000
"""The most messages with calls per turn."""


class Slip(NamedTuple):
    """A wrong message before the message of this number. label: that of its failure."""

    number: int
    text: str
    label: str


def reference_dialogue(
    task: Task, mode: str = PROMPT_MODE, omega: Omega | None = None, slip: Slip | None = None
) -> tuple[dict[str, str], ...] | None:
    """The messages of the episode in which every call is the reference's; None if it does not pass.

    omega: as in training; None for an episode as in evaluation.
    """
    side = {"split": "val"} if omega is None else {"split": "train", "omega": omega.to_json()}
    messages = said(_ENVIRONMENT, _ENVIRONMENT.calls(task), mode)
    if slip is not None:
        messages = *messages[: slip.number], slip.text, *messages[slip.number :]
    answers = played(open_episode(task, {**side, "tool_prompt_mode": mode, "max_steps": _MESSAGES}), messages)
    return tuple(dialogue(messages, answers)) if answers[-1]["valid"] else None


def drawn_slip(task: Task, mode: str, rng: random.Random) -> Slip:
    """A call of the reference with a wrong argument name, with a tool that does not exist, or cut short."""
    calls = _ENVIRONMENT.calls(task)
    places = [(turn, place) for turn, some in enumerate(calls) for place, (_, given) in enumerate(some) if given]
    turn, place = rng.choice(places)
    name, arguments = calls[turn][place]
    wrong = rng.choice(sorted(arguments))
    kind = rng.choice(("argument", "tool", "text"))
    if kind == "argument":
        arguments = {f"{key}_value" if key == wrong else key: value for key, value in arguments.items()}
    text = _ENVIRONMENT.render(mode, (f"{name}_tool" if kind == "tool" else name, arguments))
    number = place + sum(len(some) + 1 for some in calls[:turn])
    cut = text[: len(text) * 2 // 3].rstrip() if kind == "text" else text
    return Slip(number, cut, "argument_mismatch" if kind == "argument" else "invalid_tool_call")


def drawn_omega(label: str | None, rng: random.Random) -> Omega:
    """The cues that training always shows, and a guideline: for the failure with this label, or any guideline."""
    settings = EvolveSettings()
    fitting = [cue for cue in cues_in_use(settings) if cue.kind == "guideline" and label in (None, cue.label)]
    return Omega.of([*permanent_cues(settings), rng.choice(fitting).name])
