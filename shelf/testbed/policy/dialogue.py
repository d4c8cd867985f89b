"""Reference dialogues, played against the environment's own episodes.

Everything that the policy reads in them, cues of the learning interface and
answers to mistakes included, comes from the code that a rollout talks to; so
the warm start cannot drift from training.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from env_service.environments.bfcl import environment
from env_service.environments.bfcl.catalog import CLASSES, Task, available_tools, documents, revealed_tools
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.tools import parse_reference
from env_service.environments.kit.dialogue import ToolEpisode
from seal.interface.cues import Omega
from seal.interface.observation import observe_reveal, observe_start
from shelf.testbed.policy.renaming import REAL_NAMES, Renaming
from shelf.testbed.synthesis.path import PathCall
from shelf.testbed.synthesis.verify import Calls, passes

PROMPT_MODE = "compact"
"""The prompt mode that the policy learns."""

ANSWER_AFTER_CALLS = "Done."
ANSWER_WITHOUT_CALL = "I cannot do that."


class Mistake(NamedTuple):
    """A mistaken call before call `index` of a turn: the tool that it means to call, and its text."""

    turn: int
    index: int
    tool: str
    text: str

    def shown(self, renaming: Renaming) -> str:
        """The text under the new names; an unreadable call keeps its own."""
        formatter = get_format(PROMPT_MODE)
        calls = formatter.parse(self.text).calls
        return formatter.render_call(calls[0][0], renaming.arguments(*calls[0])) if calls else self.text


class Transcript(NamedTuple):
    """A whole dialogue; slips holds the positions of the assistant's messages that are mistakes."""

    messages: tuple[Mapping[str, str], ...]
    slips: tuple[int, ...] = ()


def reference_passes(task: Task) -> bool:
    """Whether a task's reference is a valid answer to the task itself."""
    return passes(task, parsed(task.reference))


def open_episode(task: Task, omega: Omega | None, max_steps: int = 1000, mode: str = PROMPT_MODE) -> ToolEpisode:
    """The episode that the service would open: for training with an Omega, for evaluation without."""
    side = {"split": "val"} if omega is None else {"split": "train", "omega": omega.to_json()}
    return environment.open_episode(task, {**side, "tool_prompt_mode": mode, "max_steps": max_steps})


def tool_names() -> tuple[str, ...]:
    """The names of all documented tools, in the order of the documents."""
    return tuple(document["name"] for name in CLASSES for document in documents(name))


def parsed(turns: Sequence[Sequence[str]]) -> Calls:
    """Call strings as (name, arguments), by turn."""
    return [[parse_reference(call) for call in calls] for calls in turns]


def slip_text(call: PathCall, names: Sequence[str], rng: random.Random) -> tuple[str, str]:
    """The tool and the text of a mistaken version of a call.

    Unreadable, for another tool, or with one argument missing or misnamed.
    """
    formatter = get_format(PROMPT_MODE)
    kind = rng.choice(("unreadable", "tool", "argument"))
    if kind == "argument" and call.arguments:
        return call.name, formatter.render_call(call.name, broken_arguments(call.arguments, rng))
    if kind == "tool":
        name = rng.choice(names)
        return name, formatter.render_call(name, call.arguments)
    text = formatter.render_call(call.name, call.arguments)
    broken = text.removesuffix("</tool_call>")
    cut = rng.randrange(1, max(2, len(broken) // 3))
    return call.name, broken[:-cut] + "</tool_call>"


def broken_arguments(arguments: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """The arguments of a call with one of them missing or misnamed."""
    broken = dict(arguments)
    value = broken.pop(rng.choice(list(broken)))
    if rng.random() < 0.5:
        broken[rng.choice(("name", "value", "input", "text", "number"))] = value
    return broken


def play(
    task: Task,
    calls: Calls,
    omega: Omega | None,
    slip: Mistake | None = None,
    renaming: Renaming = REAL_NAMES,
    mode: str = PROMPT_MODE,
) -> Transcript | None:
    """Play calls turn by turn, with a slip before one of them.

    renaming: what the dialogue calls the tools' arguments; the environment gets the real
    names. mode: the prompt mode. None if the slip ends its turn or does not fail, if the episode ends early, or if it
    does not pass.
    """
    formatter = get_format(mode)
    episode = open_episode(task, omega, mode=mode)
    messages = [_plain(message) for message in episode.start()["state"]]
    if renaming.names and omega is not None:
        tools = [renaming.document(document) for document in available_tools(task, 0)]
        plain = formatter.system(tools)
        messages[0]["content"] = observe_start(plain, tools, omega, task.category, formatter.cue_wording)
    slips: list[int] = []

    def send(text: str, shown: str, tool: str) -> Mapping[str, object]:
        messages.append({"role": "assistant", "content": shown})
        answer = episode.step(text, truncated=False)
        if not answer["is_terminated"]:
            for message in map(_plain, answer["state"]):
                messages.append({**message, "content": renaming.answer(tool, message["content"])})
        return answer["info"]

    for turn, made in enumerate(calls):
        for index, (name, arguments) in enumerate(made):
            if slip is not None and (slip.turn, slip.index) == (turn, index):
                slips.append(len(messages))
                info = send(slip.text, slip.shown(renaming), slip.tool)
                if info["error_class"] is None or info["turn"] != turn or info["stop"] is not None:
                    return None
            shown = formatter.render_call(name, renaming.arguments(name, arguments))
            send(formatter.render_call(name, arguments), shown, name)
        words = ANSWER_AFTER_CALLS if task.reference[turn] else ANSWER_WITHOUT_CALL
        info = send(words, words, "")
        if (info["stop"] is not None) != (turn == len(calls) - 1):
            return None
        if renaming.names and omega is not None and (revealed := revealed_tools(task, turn + 1)):
            tools = [renaming.document(document) for document in revealed]
            plain = formatter.reveal(tools)
            messages[-1]["content"] = observe_reveal(plain, tools, omega, task.category, formatter.cue_wording)
    return Transcript(tuple(messages), tuple(slips)) if episode.evaluate({"sparse": True}) == 1.0 else None


def _plain(message: Mapping[str, object]) -> dict[str, str]:
    return {"role": str(message["role"]), "content": str(message["content"])}
