"""The second opinion: a reader that sees only messages and tools must find the calls for which the messages ask."""

import copy
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, StringConstraints

from env_service.environments.bfcl.catalog import Task, tool_documents
from env_service.environments.bfcl.tools import WRITES, Toolbox
from shelf.suites.endpoint import Sampling
from shelf.testbed.synthesis.llm.model import EndpointModel, Rejected
from shelf.testbed.synthesis.llm.prompts import read_answer, reading
from shelf.testbed.synthesis.llm.words import is_amount, leaves, normal, says
from shelf.testbed.synthesis.path import PathCall

_TRIVIAL = 10
"""Whole numbers below this occur in results by chance."""


@cache
def tool_parameters() -> Mapping[str, Mapping[str, Any]]:
    """The schemas of every tool's arguments, by tool and argument."""
    return {name: document["parameters"]["properties"] for name, document in tool_documents().items()}


class Expected(NamedTuple):
    """A call that the words must determine. free: its arguments whose value only a result shows."""

    call: PathCall
    free: frozenset[str] = frozenset()


def expected_calls(
    turns: Sequence[Sequence[PathCall]], users: Sequence[str], task: Task
) -> tuple[tuple[Expected, ...], ...]:
    """These successful calls by turn, each with what its words may omit. task: the one in whose state they start."""
    box, told, results, expected = Toolbox(task), set(), "", []
    for calls, user in zip(turns, users, strict=True):
        told |= {normal(leaf) for call in calls for leaf in leaves(call.arguments) if says(user, leaf)}
        turn = []
        for call in calls:
            free = {
                name
                for name, value in call.arguments.items()
                for leaf in leaves(value)
                if normal(leaf) not in told and _is_shown(leaf, results) and not _is_documented(call.name, name, leaf)
            }
            turn.append(Expected(call, frozenset(free)))
            # Two tools change the list that they receive.
            results += f"\n{box.call(call.name, copy.deepcopy(dict(call.arguments))).text}"
        expected.append(tuple(turn))
    return tuple(expected)


def _is_shown(leaf: Any, results: str) -> bool:
    if isinstance(leaf, bool) or leaf is None:
        return False
    chance = is_amount(leaf) and float(leaf).is_integer() and abs(leaf) < _TRIVIAL
    return not chance and says(results, leaf)


def _is_documented(tool: str, argument: str, leaf: Any) -> bool:
    """Return whether the tool's document offers a text as a value, such as a mode."""
    described = str(tool_parameters().get(tool, {}).get(argument, ""))
    return isinstance(leaf, str) and says(described, leaf)


class _Call(BaseModel):
    name: Annotated[str, StringConstraints(strip_whitespace=True)]
    arguments: dict[str, Any] | None = None


class Reading(BaseModel):
    """The calls of each turn, as a reader lists them."""

    turns: list[list[_Call]]


async def require_recovery(
    model: EndpointModel, task: Task, expected: Sequence[Sequence[Expected]], max_tokens: int | None, name: str
) -> None:
    """Ask for the calls of a task's messages; Rejected if they are not the expected calls of each turn."""
    answer = await model.ask(reading(task.users, task), Sampling(0.0, 1.0, max_tokens), name)
    read = read_answer(answer.text, Reading)
    if read is None or len(read.turns) != len(task.users):
        raise Rejected("reader_cut" if answer.truncated else "reader_unreadable")
    calls = [[PathCall(call.name, call.arguments or {}) for call in turn] for turn in read.turns]
    if problem := disagreement(expected, calls):
        raise Rejected(problem)


def disagreement(expected: Sequence[Sequence[Expected]], turns: Sequence[Sequence[PathCall]]) -> str | None:
    """Why the calls that were read differ from those that were meant: other_calls or other_arguments; None if equal."""
    problems = [_turn_disagreement(meant, calls) for meant, calls in zip(expected, turns, strict=True)]
    return min(filter(None, problems), default=None)


def _turn_disagreement(meant: Sequence[Expected], calls: Sequence[PathCall]) -> str | None:
    """The expected calls must be read in order; between them, the reader may add calls that only read."""
    remaining, more = list(calls), []
    for expected in meant:
        place = next((number for number, call in enumerate(remaining) if _agrees(expected, call)), None)
        if place is None:
            named = any(call.name == expected.call.name for call in calls)
            return "other_arguments" if named else "other_calls"
        more += remaining[:place]
        remaining = remaining[place + 1 :]
    changing = [call for call in (*more, *remaining) if call.name in WRITES or call.name not in tool_parameters()]
    return "other_calls" if changing else None


def _agrees(expected: Expected, call: PathCall) -> bool:
    meant, read = _given(expected.call), _given(call)
    names = (meant.keys() | read.keys()) - expected.free
    told = all(name in meant and name in read and meant[name] == read[name] for name in names)
    return told and expected.call.name == call.name


def _given(call: PathCall) -> Mapping[str, Any]:
    """The arguments in a form in which equal ones compare equal, without those that do not change a default."""
    parameters = tool_parameters().get(call.name, {})
    return {
        name: _comparable(value)
        for name, value in call.arguments.items()
        if "default" not in parameters.get(name, {})
        or (value is not None and str(parameters[name]["default"]) != str(value))
    }


def _comparable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _comparable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_comparable(item) for item in value]
    return value.strip() if isinstance(value, str) else normal(value)  # capitals matter to the simulators
