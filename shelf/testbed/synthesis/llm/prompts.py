"""The requests to a model (to look around, to say what a user could have wanted, to read calls); its JSON answers."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Annotated, TypeVar

from pydantic import BaseModel, StringConstraints, ValidationError

from env_service.environments.bfcl.catalog import Task, available_tools
from seal.system.text import without_thoughts
from shelf.testbed.synthesis.llm.model import Messages
from shelf.testbed.synthesis.path import PathCall

_MOST_SHOWN = 600
"""The most characters of a result."""
_DECODER = json.JSONDecoder()
_MOST_STARTS = 200

Shape = TypeVar("Shape", bound=BaseModel)
UserMessage = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
"""A user's message of one turn."""


@cache
def texts() -> Mapping[str, str]:
    """The texts of prompts.toml."""
    return tomllib.loads(resources.files("shelf.testbed.synthesis.llm").joinpath("prompts.toml").read_text("utf-8"))


def exploring(hints: Iterable[str], most_calls: int) -> str:
    """The request to look around, which suggests these tools among others."""
    return texts()["explore"].format(tools=" and ".join(hints), most=most_calls)


def proposing(made: Sequence[tuple[PathCall, str]]) -> Messages:
    """The request to say what a user could have wanted, given successful calls and their results."""
    lines = [f"{number}. {call}\n   -> {_shortened(result)}" for number, (call, result) in enumerate(made, start=1)]
    return _dialogue(texts()["propose"], "\n".join(["The calls:", *lines]))


def reading(users: Sequence[str], task: Task) -> Messages:
    """The request for the calls that messages ask for; it shows the tools as the task does, but not its reference."""
    shown = [{name: tool[name] for name in ("name", "description", "parameters")} for tool in available_tools(task, 0)]
    parts = ["\n".join(["The tools:", *(json.dumps(tool, ensure_ascii=False) for tool in shown)])]
    parts += [f"Turn {turn}, the user:\n{user}" for turn, user in enumerate(users, start=1)]
    parts.append(f"List the calls of the {len(users)} turns.")
    return _dialogue(texts()["read"], "\n\n".join(parts))


def _shortened(result: str) -> str:
    return result if len(result) <= _MOST_SHOWN else f"{result[:_MOST_SHOWN]} ..."


def _dialogue(system: str, user: str) -> Messages:
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def read_answer(text: str, shape: type[Shape]) -> Shape | None:
    """The last JSON object in a text that has the first field of `shape`; None without one, or for another shape.

    Thoughts (up to ``</think>``), prose and code fences around it do not matter.
    """
    text, key = without_thoughts(text), next(iter(shape.model_fields))
    last, end = None, 0
    for start in [match.start() for match in re.finditer(r"\{", text)][:_MOST_STARTS]:
        if start < end:
            continue  # this place is inside an object that was already read
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        last = value if isinstance(value, dict) and key in value else last
    try:
        return None if last is None else shape.model_validate(last)
    except ValidationError:
        return None
