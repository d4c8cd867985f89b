"""Whether a reader of the messages found the calls that they are meant to ask for."""

from collections.abc import Mapping, Sequence
from typing import Any

from env_service.environments.bfcl.tools import WRITES
from shelf.testbed.synthesis.llm.documents import is_tool, parameters_of
from shelf.testbed.synthesis.llm.intent import Expected, Intent
from shelf.testbed.synthesis.llm.values import normal
from shelf.testbed.synthesis.path import PathCall

FROM_RESULT = "<result>"
"""What a reader writes for a value that only a result tells."""

LOGINS = frozenset({"ticket_login", "trading_login", "message_login", "authenticate_twitter", "authenticate_travel"})
"""Calls that may come at any place of a turn."""


def read_turns(answer: Mapping[str, Any], count: int) -> tuple[tuple[PathCall, ...], ...] | None:
    """The calls of each turn in a reader's answer {"turns": [[{"name", "arguments"}]]}; None if it is none."""
    turns = answer.get("turns")
    if not isinstance(turns, list) or len(turns) != count:
        return None
    found = []
    for calls in turns:
        if not isinstance(calls, list) or not all(map(_is_call, calls)):
            return None
        found.append(tuple(PathCall(call["name"].strip(), call.get("arguments") or {}) for call in calls))
    return tuple(found)


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
    made = (
        []
        if intent.asking in ("without_tool", "without_value")
        else [Expected(c, frozenset(), ()) for c in intent.about]
    )
    for call in remaining:
        look_up = is_tool(call.name) and call.name not in WRITES
        is_made = any(each.call.name == call.name and _agrees(each, call) for each in made)
        if not (is_made or (intent.loose and (look_up or call.name in known))):
            return "other_calls"
    return None


def _agrees(expected: Expected, call: PathCall) -> bool:
    meant, read = _given(expected.call), _given(call)
    if not isinstance(read, Mapping):
        return False
    names = (meant.keys() | read.keys()) - expected.free
    return all(name in meant and name in read and _same(meant[name], read[name]) for name in names)


def _given(call: PathCall) -> Mapping[str, Any]:
    """The arguments but for those that say what the tool does anyway."""
    parameters = parameters_of(call.name)
    return {
        name: value
        for name, value in call.arguments.items()
        if "default" not in parameters.get(name, {}) or not _is_default(parameters[name]["default"], value)
    }


def _is_default(default: Any, value: Any) -> bool:
    return value is None or str(default) == str(value)


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


def _is_call(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("arguments") or {}, dict)
    )
