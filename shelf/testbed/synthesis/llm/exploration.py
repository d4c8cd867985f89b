"""A model acts in the state of a task: the calls that it made, what they gave, and whether they come to anything."""

import copy
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from env_service.environments.bfcl.catalog import Task, available_tools, documents
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.tools import WRITES, Toolbox
from env_service.environments.bfcl.verifier import ReferenceTurn, compare, reference
from seal.diagnosis.results import reports_failure
from shelf.suites.chat import Sampling
from shelf.testbed.synthesis.llm.model import EndpointModel
from shelf.testbed.synthesis.llm.prompts import exploring
from shelf.testbed.synthesis.llm.words import leaves, normal
from shelf.testbed.synthesis.path import PathCall

PROMPT_MODE = "bfcl_qwen_fc"
"""The prompt mode in which tools are shown and calls are read: the benchmark's own."""

_MATH = frozenset(document["name"] for document in documents("MathAPI"))
_MOST_MATH = 1e6
_MOST_DIGITS = {"precision": 50, "exponent": 100, "decimal_places": 50}
_EXTRA_MESSAGES = 3
"""Messages without a readable call that a model may write."""


class CallResult(NamedTuple):
    """A call and the text that it gave."""

    call: PathCall
    result: str


@dataclass
class Playground:
    """The simulators of a task, on which calls are made one after the other."""

    task: Task
    made: list[CallResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._box = Toolbox(self.task)

    def make(self, name: str, arguments: dict) -> CallResult:
        """Make a call; one whose numbers would keep a simulator busy for too long is refused."""
        if problem := _too_much(name, arguments):
            made = CallResult(PathCall(name, arguments, succeeded=False), f"Error during execution: {problem}")
        else:
            # Two tools change the list that they receive.
            outcome = self._box.call(name, copy.deepcopy(arguments))
            failed = bool(outcome.error) or reports_failure(name, outcome.text)
            made = CallResult(PathCall(name.strip(), arguments, succeeded=not failed), outcome.text)
        self.made.append(made)
        return made


async def explore(
    model: EndpointModel, task: Task, most_calls: int, sampling: Sampling, name: str
) -> tuple[CallResult, ...]:
    """Let a model act in the initial state of a task; every call with its result, failures included."""
    shown, form, rng = available_tools(task, 0), get_format(PROMPT_MODE), random.Random(name)
    hints = rng.sample([tool["name"] for tool in shown], 2)
    messages = [
        {"role": "system", "content": form.system(shown)},
        {"role": "user", "content": exploring(hints, most_calls)},
    ]
    playground = Playground(task)
    for number in range(most_calls + _EXTRA_MESSAGES):
        answer = await model.ask(messages, sampling, f"{name}/{number}")
        said = answer.text.rpartition("</think>")[2].strip()
        parsed = form.parse(said)
        if not parsed.calls and not parsed.refusals:
            break
        results = [playground.make(*call).result for call in parsed.calls[: most_calls - len(playground.made)]]
        messages += [{"role": "assistant", "content": said}, *form.results([*results, *parsed.refusals])]
        if len(playground.made) >= most_calls:
            break
    return tuple(playground.made)


def results_again(task: Task, made: Sequence[CallResult]) -> bool:
    """Return whether these calls, made alone from the task's initial state, all give the same results again."""
    playground = Playground(task)
    again = [playground.make(one.call.name, dict(one.call.arguments)) for one in made]
    return all(one.call.succeeded and one.result == other.result for one, other in zip(again, made, strict=True))


def does_nothing(task: Task, made: Sequence[CallResult]) -> bool:
    """Return whether the reference changes no state and its results say nothing that its arguments do not."""
    before, after = Toolbox(task).instances, reference(task)[-1].instances
    unchanged = compare(ReferenceTurn(("",), after, None), before, True, [""]).state_match
    return bool(unchanged) and not any(map(_tells, made))


def _tells(made: CallResult) -> bool:
    """Return whether the call is made for its result, and the result holds a value that the call does not."""
    if made.call.name in WRITES:
        return False
    try:
        value = json.loads(made.result)
    except ValueError:
        value = made.result
    given = {normal(leaf) for leaf in leaves(made.call.arguments)}
    told = (leaf for leaf in leaves(value) if leaf not in (None, "", "None") and not isinstance(leaf, bool))
    return any(normal(leaf) not in given for leaf in told)


def _too_much(name: str, arguments: dict) -> str | None:
    if name.strip() not in _MATH:
        return None
    for argument, value in arguments.items():
        most = _MOST_DIGITS.get(argument, _MOST_MATH)
        if any(isinstance(leaf, int | float) and abs(leaf) > most for leaf in leaves(value)):
            return f"{argument} must not exceed {most:g}"
    return None
