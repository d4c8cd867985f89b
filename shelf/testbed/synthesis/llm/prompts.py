"""What a model is asked: to write the messages of a path, and to read calls out of messages."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from env_service.environments.bfcl.catalog import Document, Task, available_tools, revealed_tools
from shelf.testbed.synthesis.llm.intent import Intent
from shelf.testbed.synthesis.llm.model import Messages
from shelf.testbed.synthesis.path import PathCall

FROM_RESULT = "<result>"
"""What a reader writes for a value that only a result tells; prompts.toml says so too."""

_MOST_SHOWN = 600
"""Characters of a result."""


@cache
def texts() -> Mapping[str, Any]:
    """The texts of prompts.toml."""
    return tomllib.loads(resources.files("shelf.testbed.synthesis.llm").joinpath("prompts.toml").read_text("utf-8"))


def exploring(hints: Iterable[str], most_calls: int) -> str:
    """The request to look around, with these tools among others."""
    return texts()["explore"].format(tools=" and ".join(hints), most=most_calls)


def writing(intents: Sequence[Intent], gists: Sequence[str | None], task: Task, style: str) -> Messages:
    """The request for the messages of a path.

    gists: by turn, another wording of what is asked for, where the calls alone do not tell.
    """
    used = {call.name for intent in intents for call in intent.about}
    tools = [tool for tool in available_tools(task, len(task.users)) if tool["name"] in used]
    spoken = [(intent, gist) for intent, gist in zip(intents, gists, strict=True) if intent.asking is not None]
    parts = [_documents("The tools", tools), f"The user's style: {style}."]
    parts += [_turn(number, intent, gist) for number, (intent, gist) in enumerate(spoken, start=1)]
    parts.append(f"Write {len(spoken)} message{'s' if len(spoken) > 1 else ''}.")
    return _dialogue(texts()["write"], "\n\n".join(parts))


def proposing(made: Sequence[tuple[PathCall, str]]) -> Messages:
    """The request for what a user could have wanted, given successful calls and their results."""
    lines = [f"{number}. {call}\n   -> {_shortened(result)}" for number, (call, result) in enumerate(made, start=1)]
    return _dialogue(texts()["propose"], "\n".join(["The calls:", *lines]))


def reading(users: Sequence[str | None], task: Task) -> Messages:
    """The request for the calls of messages; it shows the tools as the task does, and nothing of its reference."""
    parts = [_documents("The tools", available_tools(task, 0))]
    for turn, user in enumerate(users):
        if user is None:
            parts.append(_documents(f"Turn {turn + 1}: the user says nothing; new tools", revealed_tools(task, turn)))
        else:
            parts.append(f"Turn {turn + 1}, the user:\n{user}")
    parts.append(f"List the calls of the {len(users)} turns.")
    return _dialogue(texts()["read"], "\n\n".join(parts))


def _turn(number: int, intent: Intent, gist: str | None) -> str:
    lines = [f"Turn {number}"]
    note = texts()["notes"].get(intent.asking)
    lines += [f"note: {note}"] if note else []
    fails = "   (fails; the calls after it are what is done about it)"
    lines += ["calls:", *(f"  {call}{'' if call.succeeded else fails}" for call in intent.about)]
    lines += [f"must say: {_listed(intent.say)}"] if intent.say else []
    lines += [f"said before: {_listed(intent.before)}"] if intent.before else []
    lines += [f"must not say: {_listed(intent.secret)}"] if intent.secret else []
    lines += [f'the same request in other words (do not copy them): "{gist}"'] if gist else []
    return "\n".join(lines)


def _shortened(result: str) -> str:
    return result if len(result) <= _MOST_SHOWN else f"{result[:_MOST_SHOWN]} ..."


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(json.dumps(value, ensure_ascii=False) for value in values))


def _documents(title: str, tools: Iterable[Document]) -> str:
    shown = [{name: tool[name] for name in ("name", "description", "parameters")} for tool in tools]
    return "\n".join([f"{title}:", *(json.dumps(tool, ensure_ascii=False) for tool in shown)])


def _dialogue(system: str, user: str) -> Messages:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
