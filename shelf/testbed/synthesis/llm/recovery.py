"""The second opinion: a reader who sees only messages and tools must find the calls that they are meant to ask for."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, StringConstraints

from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.tools import WRITES
from shelf.suites.chat import Sampling
from shelf.testbed.synthesis.llm.intent import Expected, Intent, tool_parameters
from shelf.testbed.synthesis.llm.json_answer import read_answer
from shelf.testbed.synthesis.llm.model import Model, Rejected
from shelf.testbed.synthesis.llm.prompts import reading
from shelf.testbed.synthesis.llm.words import normal
from shelf.testbed.synthesis.path import PathCall

LOGINS = frozenset({"ticket_login", "trading_login", "message_login", "authenticate_twitter", "authenticate_travel"})
"""Calls that may come at any place of a turn."""


class _Call(BaseModel):
    name: Annotated[str, StringConstraints(strip_whitespace=True)]
    arguments: dict[str, Any] | None = None


class Reading(BaseModel):
    """What a reader lists: the calls of each turn."""

    turns: list[list[_Call]]

    def calls(self) -> list[list[PathCall]]:
        """By turn."""
        return [[PathCall(call.name, call.arguments or {}) for call in turn] for turn in self.turns]


async def require_recovery(model: Model, task: Task, intents: Sequence[Intent], max_tokens: int, name: str) -> None:
    """Ask for the calls of a task's messages; Rejected if they are not those that are intended."""
    answer = await model.ask(reading(task.users, task), Sampling(0.0, 1.0, max_tokens), name)
    read = read_answer(answer.text, Reading)
    if read is None or len(read.turns) != len(task.users):
        raise Rejected("reader_cut" if answer.truncated else "reader_unreadable")
    if problem := disagreement(intents, read.calls()):
        raise Rejected(problem)


def disagreement(intents: Sequence[Intent], turns: Sequence[Sequence[PathCall]]) -> str | None:
    """Why what was read is not what was meant: other_calls or other_arguments; None if it is."""
    problems = [_turn_disagreement(intent, calls) for intent, calls in zip(intents, turns, strict=True)]
    return min(filter(None, problems), default=None)


def _turn_disagreement(intent: Intent, calls: Sequence[PathCall]) -> str | None:
    remaining = list(calls)
    at = 0
    for expected in intent.expected:
        named = [number for number, call in enumerate(remaining) if call.name == expected.call.name]
        if not named:
            return "other_calls"
        agreeing = [number for number in named if _agrees(expected, remaining[number])]
        if not agreeing:
            return "other_arguments"
        in_place = intent.ordered and expected.call.name not in LOGINS
        number = next((number for number in agreeing if number >= at or not in_place), None)
        if number is None:
            return "other_calls"
        del remaining[number]
        at = number if in_place else at - (number < at)
    known = {expected.call.name for expected in intent.expected}
    about = () if intent.asking in ("without_tool", "without_value") else intent.about
    made = [Expected(call, frozenset(), ()) for call in about]
    for call in remaining:
        look_up = call.name in tool_parameters() and call.name not in WRITES
        is_made = any(each.call.name == call.name and _agrees(each, call) for each in made)
        if not (is_made or (intent.loose and (look_up or call.name in known))):
            return "other_calls"
    return None


def _agrees(expected: Expected, call: PathCall) -> bool:
    meant, read = _given(expected.call), _given(call)
    names = (meant.keys() | read.keys()) - expected.free
    return all(name in meant and name in read and _same(meant[name], read[name]) for name in names)


def _given(call: PathCall) -> Mapping[str, Any]:
    """The arguments but for those that say what the tool does anyway."""
    parameters = tool_parameters().get(call.name, {})
    return {
        name: value
        for name, value in call.arguments.items()
        if "default" not in parameters.get(name, {})
        or (value is not None and str(parameters[name]["default"]) != str(value))
    }


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Mapping | list | tuple) or isinstance(other, Mapping | list | tuple):
        return False
    if isinstance(one, str) and isinstance(other, str):
        return one.strip() == other.strip()  # capitals matter to the simulators
    return normal(one) == normal(other)
