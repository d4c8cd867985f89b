"""The second opinion: a reader who sees only messages and tools must find the calls that they are meant to ask for."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, StringConstraints

from env_service.environments.bfcl.catalog import Task
from env_service.environments.bfcl.tools import WRITES
from shelf.suites.chat import Sampling
from shelf.testbed.synthesis.llm.expected import Expected, tool_parameters
from shelf.testbed.synthesis.llm.json_answer import read_answer
from shelf.testbed.synthesis.llm.model import EndpointModel, Rejected
from shelf.testbed.synthesis.llm.prompts import reading
from shelf.testbed.synthesis.llm.words import normal
from shelf.testbed.synthesis.path import PathCall


class _Call(BaseModel):
    name: Annotated[str, StringConstraints(strip_whitespace=True)]
    arguments: dict[str, Any] | None = None


class Reading(BaseModel):
    """The calls of each turn, as a reader lists them."""

    turns: list[list[_Call]]

    def calls(self) -> list[list[PathCall]]:
        """By turn."""
        return [[PathCall(call.name, call.arguments or {}) for call in turn] for turn in self.turns]


async def require_recovery(
    model: EndpointModel, task: Task, expected: Sequence[Sequence[Expected]], max_tokens: int | None, name: str
) -> None:
    """Ask for the calls of a task's messages; Rejected if they are not those that are expected, by turn."""
    answer = await model.ask(reading(task.users, task), Sampling(0.0, 1.0, max_tokens), name)
    read = read_answer(answer.text, Reading)
    if read is None or len(read.turns) != len(task.users):
        raise Rejected("reader_cut" if answer.truncated else "reader_unreadable")
    if problem := disagreement(expected, read.calls()):
        raise Rejected(problem)


def disagreement(expected: Sequence[Sequence[Expected]], turns: Sequence[Sequence[PathCall]]) -> str | None:
    """Why what was read is not what was meant: other_calls or other_arguments; None if it is."""
    problems = [_turn_disagreement(meant, calls) for meant, calls in zip(expected, turns, strict=True)]
    return min(filter(None, problems), default=None)


def _turn_disagreement(meant: Sequence[Expected], calls: Sequence[PathCall]) -> str | None:
    """The expected calls must be read in their order; between them a reader may think of further look-ups."""
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
    """The arguments in a form in which equal ones compare equal, but for those that say what the tool does anyway."""
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
