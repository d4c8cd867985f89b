"""Reference dialogues, played against the environment's own episodes.

Everything that the policy reads in them, cues of the learning interface and
answers to mistakes included, comes from the code that a rollout talks to; so
the warm start cannot drift from training.
"""

import copy
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from env_service.environments.base import Guard
from env_service.environments.bfcl.catalog import CLASSES, Task, documents
from env_service.environments.bfcl.dialogue import BfclEpisode
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.settings import Settings
from env_service.environments.bfcl.tools import parse_reference
from env_service.environments.bfcl.verifier import verify
from seal.interface.cues import Omega
from seal.policy.variants import Call

PROMPT_MODE = "compact"
"""The prompt mode that the policy learns."""

ANSWER_AFTER_CALLS = "Done."
ANSWER_WITHOUT_CALL = "I cannot do that."

Calls = Sequence[Sequence[tuple[str, Mapping[str, Any]]]]
"""Calls by turn, as (name, arguments)."""


class Transcript(NamedTuple):
    """A whole dialogue; slips holds the positions of the assistant's messages that are mistakes."""

    messages: tuple[Mapping[str, str], ...]
    slips: tuple[int, ...] = ()


def passes(task: Task, calls: Calls) -> bool:
    """Whether the calls, turn by turn, are a valid answer to the task; too few turns never are."""
    # Two tools change the list that they receive: each call gets its own copy.
    own = [[[(name, copy.deepcopy(dict(arguments))) for name, arguments in made]] for made in calls]
    return verify(task, own).valid


def reference_passes(task: Task) -> bool:
    """Whether a task's reference is a valid answer to the task itself."""
    return passes(task, [[parse_reference(call) for call in turn] for turn in task.reference])


def open_episode(task: Task, omega: Omega | None, max_steps: int = 1000) -> BfclEpisode:
    """The episode that the service would open: for training with an Omega, for evaluation without."""
    side = {"split": "val"} if omega is None else {"split": "train", "omega": omega.to_json()}
    return BfclEpisode(task, Settings(**side, tool_prompt_mode=PROMPT_MODE, max_steps=max_steps), Guard())


def tool_names() -> tuple[str, ...]:
    """The names of all documented tools, in the order of the documents."""
    return tuple(document["name"] for name in CLASSES for document in documents(name))


def play_reference(task: Task, omega: Omega | None = None) -> Transcript:
    """The dialogue in which every call is the reference's."""
    transcript = _play(task, omega, slip=None)
    if transcript is None:
        raise ValueError(f"The reference of {task.id} ends its episode early: this benchmark version is not supported.")
    return transcript


def play_with_slip(task: Task, omega: Omega, rng: random.Random) -> Transcript:
    """The reference dialogue with one mistake before one of the calls, which the environment answers.

    The mistake must fail without changing the outcome; if three attempts give no
    such mistake, or nothing is called, the dialogue has none.
    """
    calls = [[parse_reference(call) for call in turn] for turn in task.reference]
    positions = [(turn, index) for turn, made in enumerate(calls) for index in range(len(made))]
    for _ in range(3 if positions else 0):
        turn, index = rng.choice(positions)
        text = slip_text(Call(*calls[turn][index]), tool_names(), rng)
        transcript = _play(task, omega, slip=(turn, index, text))
        made = list(map(list, calls))
        made[turn][index:index] = get_format(PROMPT_MODE).parse(text).calls
        if transcript is not None and passes(task, made):
            return transcript
    return play_reference(task, omega)


def slip_text(call: Call, names: Sequence[str], rng: random.Random) -> str:
    """A mistaken version of a call: unreadable, for another tool, or with one argument missing or misnamed."""
    formatter = get_format(PROMPT_MODE)
    kind = rng.choice(("unreadable", "tool", "argument"))
    if kind == "argument" and call.arguments:
        arguments = dict(call.arguments)
        value = arguments.pop(rng.choice(list(arguments)))
        if rng.random() < 0.5:
            arguments[rng.choice(("name", "value", "input", "text", "number"))] = value
        return formatter.render_call(call.name, arguments)
    if kind == "tool":
        return formatter.render_call(rng.choice(names), call.arguments)
    text = formatter.render_call(call.name, call.arguments)
    broken = text.removesuffix("</tool_call>")
    cut = rng.randrange(1, max(2, len(broken) // 3))
    return broken[:-cut] + "</tool_call>"


def _play(task: Task, omega: Omega | None, slip: tuple[int, int, str] | None) -> Transcript | None:
    """Play the reference, with a slip before one call (turn, index, text); None if the slip ends the turn."""
    formatter = get_format(PROMPT_MODE)
    episode = open_episode(task, omega)
    messages = [_plain(message) for message in episode.start()["state"]]
    slips: list[int] = []

    def send(text: str) -> Mapping[str, object]:
        messages.append({"role": "assistant", "content": text})
        answer = episode.step(text, truncated=False)
        if not answer["is_terminated"]:
            messages.extend(_plain(message) for message in answer["state"])
        return answer["info"]

    for turn, reference in enumerate(task.reference):
        for index, call in enumerate(reference):
            if slip is not None and slip[:2] == (turn, index):
                slips.append(len(messages))
                info = send(slip[2])
                if info["error_class"] is None or info["turn"] != turn or info["stop"] is not None:
                    return None
            send(formatter.render_call(*parse_reference(call)))
        info = send(ANSWER_AFTER_CALLS if reference else ANSWER_WITHOUT_CALL)
        if (info["stop"] is not None) != (turn == len(task.reference) - 1):
            return None
    return Transcript(tuple(messages), tuple(slips))


def _plain(message: Mapping[str, object]) -> dict[str, str]:
    return {"role": str(message["role"]), "content": str(message["content"])}
