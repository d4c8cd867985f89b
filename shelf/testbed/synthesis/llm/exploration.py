"""A model acts in the state of a task: which calls it made, and what they gave."""

import copy
import random
from dataclasses import dataclass, field
from typing import NamedTuple

from env_service.environments.bfcl.catalog import Task, available_tools, documents
from env_service.environments.bfcl.formats import Call, get_format
from env_service.environments.bfcl.tools import Toolbox
from seal.diagnosis.results import reports_failure
from shelf.suites.chat import Sampling
from shelf.testbed.synthesis.llm.model import Model
from shelf.testbed.synthesis.llm.values import leaves
from shelf.testbed.synthesis.path import PathCall

PROMPT_MODE = "bfcl_qwen_fc"
"""The prompt mode in which tools are shown and calls are read: the benchmark's own."""

_EXPLORE = """\
Nobody has asked you for anything yet: look around. Find out with your tools what there is, and then get something \
done that a user of these tools could really want, in two to six calls that belong together: some that look something \
up, and some that change something. Use only values that a result has shown, or that a user could have chosen freely. \
Among others, try {tools}. You may make {most} calls in all, several in one message. When you are done, answer with \
one short sentence and no call."""

_MATH = frozenset(document["name"] for document in documents("MathAPI"))
_MOST_MATH = 1e6
_MOST_DIGITS = {"precision": 50, "exponent": 100, "decimal_places": 50}
_EXTRA_MESSAGES = 3
"""Messages without a readable call that a model may write."""


class Made(NamedTuple):
    """A call and the text that it gave."""

    call: PathCall
    result: str


@dataclass
class Playground:
    """The simulators of a task, on which calls are made one after the other."""

    task: Task
    made: list[Made] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._box = Toolbox(self.task)

    def make(self, name: str, arguments: dict) -> Made:
        """Make a call; one whose numbers would keep a simulator busy for too long is refused."""
        if problem := _too_much(name, arguments):
            made = Made(PathCall(name, arguments, succeeded=False), f"Error during execution: {problem}")
        else:
            # Two tools change the list that they receive.
            outcome = self._box.call(name, copy.deepcopy(arguments))
            failed = bool(outcome.error) or reports_failure(name, outcome.text)
            made = Made(PathCall(name.strip(), arguments, succeeded=not failed), outcome.text)
        self.made.append(made)
        return made


async def explore(model: Model, task: Task, most_calls: int, sampling: Sampling, name: str) -> tuple[Made, ...]:
    """Let a model act in the initial state of a task; every call with its result, failures included."""
    shown, form, rng = available_tools(task, 0), get_format(PROMPT_MODE), random.Random(name)
    hints = rng.sample([tool["name"] for tool in shown], 2)
    messages = [
        {"role": "system", "content": form.system(task, shown)},
        {"role": "user", "content": _EXPLORE.format(tools=" and ".join(hints), most=most_calls)},
    ]
    playground = Playground(task)
    for number in range(most_calls + _EXTRA_MESSAGES):
        answer = await model.ask(messages, sampling, f"{name}/{number}")
        said = answer.text.rpartition("</think>")[2].strip()
        parsed = form.parse(said)
        if not parsed.calls and not parsed.refusals:
            break
        messages.append({"role": "assistant", "content": said})
        messages += form.results([*_make(playground, parsed.calls, most_calls), *parsed.refusals])
        if len(playground.made) >= most_calls:
            break
    return tuple(playground.made)


def _make(playground: Playground, calls: tuple[Call, ...], most_calls: int) -> list[str]:
    left = most_calls - len(playground.made)
    return [playground.make(name, arguments).result for name, arguments in calls[:left]]


def _too_much(name: str, arguments: dict) -> str | None:
    if name.strip() not in _MATH:
        return None
    for argument, value in arguments.items():
        most = _MOST_DIGITS.get(argument, _MOST_MATH)
        if any(isinstance(leaf, int | float) and abs(leaf) > most for leaf in leaves(value)):
            return f"{argument} must not exceed {most:g}"
    return None
