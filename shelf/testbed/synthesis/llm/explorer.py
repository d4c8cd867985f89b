"""The writer `explore`: a model acts in the state of a training task, then says what a user could have wanted."""

import copy
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field, StrictInt

from env_service.environments.bfcl.catalog import Task, all_tools, available_tools, documents, load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.splits import TRAIN_SCENARIOS
from env_service.environments.bfcl.task_file import MadeTask, Provenance
from env_service.environments.bfcl.tools import WRITES, Toolbox
from env_service.environments.bfcl.verifier import ReferenceTurn, compare, reference
from seal.method.diagnosis.results import reports_failure
from seal.records.benchmark import task_id
from seal.system.text import without_thoughts
from shelf.suites.endpoint import Sampling
from shelf.testbed.synthesis.llm.model import EndpointModel, Rejected
from shelf.testbed.synthesis.llm.prompts import UserMessage, exploring, proposing, read_answer
from shelf.testbed.synthesis.llm.recovery import Expected, expected_calls, require_recovery
from shelf.testbed.synthesis.llm.words import is_copied, leaves, normal, pasted, similarity
from shelf.testbed.synthesis.path import PathCall
from shelf.testbed.synthesis.verify import evaluation_state, problem_of

PROMPT_MODE = "bfcl_qwen_fc"
"""The prompt mode in which tools are shown and calls are read: the benchmark's own."""
_MATH = frozenset(document["name"] for document in documents("MathAPI"))
_MOST_MATH = 1e6
_MOST_DIGITS = {"precision": 50, "exponent": 100, "decimal_places": 50}
_EXTRA_MESSAGES = 3
"""The number of messages without a readable call that a model may write."""
NAME = "explore"
NEAR_SAME = 0.8
"""Two tasks from one seed task count as the same if their messages share this part of their words."""

_DRAWS_PER_EXPLORATION = 2
_LEAST_CALLS = 2
"""The least number of calls in a task."""


class CallResult(NamedTuple):
    """A call and its result as text."""

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
        """Make a call; refuse a call whose numbers would keep a simulator busy for too long."""
        if problem := _too_much(name, arguments):
            made = CallResult(PathCall(name, arguments, succeeded=False), f"Error during execution: {problem}")
        else:
            # Two tools change the list that they receive.
            outcome = self._box.call(name, copy.deepcopy(arguments))
            failed = bool(outcome.error) or reports_failure(name, outcome.text)
            made = CallResult(PathCall(name.strip(), arguments, succeeded=not failed), outcome.text)
        self.made.append(made)
        return made


class _Turn(BaseModel):
    """A message of the user, and the numbers, from 1, of the calls that were made for it."""

    message: UserMessage
    calls: Annotated[list[StrictInt], Field(min_length=1)]


class _Proposal(BaseModel):
    turns: Annotated[list[_Turn], Field(min_length=1, max_length=5)]

    def among(self, count: int) -> bool:
        """Return whether the numbers ascend over all turns and are from 1 to `count`."""
        numbers = [number for turn in self.turns for number in turn.calls]
        return numbers == sorted(set(numbers) & set(range(1, count + 1)))


@dataclass(frozen=True)
class Explorer:
    """Makes the tasks of one file from these seed tasks, in turn. most_calls: the limit per exploration."""

    model: EndpointModel
    seeds: Sequence[Task]
    seed: int
    most_calls: int
    sampling: Sampling

    async def attempt(self, number: int, draw: int) -> MadeTask:
        """One draw for the task of this number; Rejected says why it failed."""
        seed_task = self.seeds[number % len(self.seeds)]
        walk = f"{NAME}/{number}/{draw // _DRAWS_PER_EXPLORATION}"
        made = await explore(self.model, seed_task, self.most_calls, self.sampling, walk)
        worked = [one for one in made if one.call.succeeded]
        if len(worked) < _LEAST_CALLS:
            raise Rejected("too_few_calls")
        name = f"{NAME}/{number}/{draw}"
        proposal = await self._propose(worked, seed_task, f"{name}/propose")
        users = tuple(turn.message for turn in proposal.turns)
        calls = [[worked[number - 1] for number in turn.calls] for turn in proposal.turns]
        self._require_sense([one for turn in calls for one in turn], seed_task)
        expected = expected_calls([[one.call for one in turn] for turn in calls], users, seed_task)
        task = self._task(users, expected, seed_task, number)
        if does_nothing(task.task, [one for turn in calls for one in turn]):
            raise Rejected("does_nothing")
        if problem_of(task.task) is not None:
            raise Rejected("unsound")
        await require_recovery(self.model, task.task, expected, self.sampling.max_tokens, f"{name}/read")
        return task

    def repeats(self, task: MadeTask, others: Iterable[MadeTask]) -> str | None:
        """The reason why a task repeats one of the others, None if it does not."""
        for other in others:
            if other.users == task.users:
                return "same_messages"
            if other.provenance.source == task.provenance.source:
                if other.reference == task.reference:
                    return "same_calls"
                if similarity(filter(None, task.users), filter(None, other.users)) >= NEAR_SAME:
                    return "same_messages"
        return None

    async def _propose(self, worked: Sequence[CallResult], seed_task: Task, name: str) -> _Proposal:
        answer = await self.model.ask(proposing(worked), self.sampling, name)
        proposal = read_answer(answer.text, _Proposal)
        if proposal is None or not proposal.among(len(worked)):
            raise Rejected("cut" if answer.truncated else "unreadable")
        for turn in proposal.turns:
            values = [value for number in turn.calls for value in worked[number - 1].call.arguments.values()]
            if pasted(turn.message, all_tools(seed_task), values):
                raise Rejected("names_tools")
        if is_copied(turn.message for turn in proposal.turns):
            raise Rejected("copies_benchmark")
        return proposal

    def _require_sense(self, chosen: Sequence[CallResult], seed_task: Task) -> None:
        if len(chosen) < _LEAST_CALLS:
            raise Rejected("too_few_calls")
        if len({(str(one.call), one.result) for one in chosen}) < len(chosen):
            raise Rejected("repeats_a_call")
        if not results_again(seed_task, chosen):
            raise Rejected("needs_other_calls")

    def _task(
        self, users: tuple[str, ...], expected: Sequence[Sequence[Expected]], seed_task: Task, number: int
    ) -> MadeTask:
        reference = tuple(tuple(str(one.call) for one in turn) for turn in expected)
        made_by = Provenance(writer=NAME, seed=self.seed, number=number, model=self.model.name, source=seed_task.id)
        return MadeTask(
            category="base",
            level="train",
            kinds=("results",) if any(one.free for turn in expected for one in turn) else (),
            classes=seed_task.involved_classes,
            config=dict(seed_task.initial_config),
            users=users,
            reference=reference,
            demonstration=reference,
            provenance=made_by,
        ).named()


async def explore(
    model: EndpointModel, task: Task, most_calls: int, sampling: Sampling, name: str
) -> tuple[CallResult, ...]:
    """Let a model act in the initial state of a task; return every call with its result, including failures."""
    shown, form, rng = available_tools(task, 0), get_format(PROMPT_MODE), random.Random(name)
    hints = rng.sample([tool["name"] for tool in shown], 2)
    messages = [
        {"role": "system", "content": form.system(shown)},
        {"role": "user", "content": exploring(hints, most_calls)},
    ]
    playground = Playground(task)
    for number in range(most_calls + _EXTRA_MESSAGES):
        answer = await model.ask(messages, sampling, f"{name}/{number}")
        said = without_thoughts(answer.text).strip()
        parsed = form.parse(said)
        if not parsed.calls and not parsed.refusals:
            break
        results = [playground.make(*call).result for call in parsed.calls[: most_calls - len(playground.made)]]
        messages += [{"role": "assistant", "content": said}, *form.results([*results, *parsed.refusals])]
        if len(playground.made) >= most_calls:
            break
    return tuple(playground.made)


def results_again(task: Task, made: Sequence[CallResult]) -> bool:
    """Return whether only these calls, made from the task's initial state, all give the same results again."""
    playground = Playground(task)
    again = [playground.make(one.call.name, dict(one.call.arguments)) for one in made]
    return all(one.call.succeeded and one.result == other.result for one, other in zip(again, made, strict=True))


def does_nothing(task: Task, made: Sequence[CallResult]) -> bool:
    """Return whether the reference changes no state and its results say nothing beyond its arguments."""
    before, after = Toolbox(task).instances, reference(task)[-1].instances
    unchanged = compare(ReferenceTurn(("",), after, None), before, True, [""]).state_match
    return bool(unchanged) and not any(map(_tells, made))


def _tells(made: CallResult) -> bool:
    """Return whether the call only reads, and its result holds a value that the call does not."""
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


def seed_tasks(scenarios: Sequence[int] | None) -> tuple[Task, ...]:
    """The plain tasks of these scenarios (by default all allowed ones), in whose states a model may look around.

    ValueError for a scenario that is not on the training side, or that starts in the state of an evaluation task.
    """
    if others := sorted(set(scenarios or ()) - set(TRAIN_SCENARIOS)):
        raise ValueError(f"Scenario {others[0]} does not belong to the training side: name another one.")
    tasks = {number: load_tasks()[task_id("base", number)] for number in scenarios or TRAIN_SCENARIOS}
    states = {number: evaluation_state(task.initial_config) for number, task in tasks.items()}
    if scenarios and (shared := next((number for number in tasks if states[number]), None)) is not None:
        raise ValueError(f"Scenario {shared} starts in {states[shared]}: name another one.")
    return tuple(task for number, task in tasks.items() if states[number] is None)
