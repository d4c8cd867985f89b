"""The writer `explore`: a model acts in the state of a training task, then says what a user could have wanted."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from env_service.environments.bfcl.catalog import Task, all_tools
from env_service.environments.bfcl.task_file import MadeTask, Provenance
from shelf.suites.chat import Sampling
from shelf.testbed.synthesis.llm.exploration import Made, explore
from shelf.testbed.synthesis.llm.intent import Intent, told_intents
from shelf.testbed.synthesis.llm.json_answer import object_with
from shelf.testbed.synthesis.llm.model import Model, Rejected
from shelf.testbed.synthesis.llm.overlap import copied_from, similarity
from shelf.testbed.synthesis.llm.prompts import proposing
from shelf.testbed.synthesis.llm.reader import require_recovery
from shelf.testbed.synthesis.llm.substance import does_nothing, repeats_a_call, results_again
from shelf.testbed.synthesis.llm.wording import pasted
from shelf.testbed.synthesis.verify import problem_of

NAME = "explore"
NEAR_SAME = 0.8
"""Two tasks of a seed task whose messages share so many of their words are the same."""

_DRAWS_PER_EXPLORATION = 2
_MOST_TURNS = 5
_MOST_CHARACTERS = 2000


class Turn(NamedTuple):
    """A turn that a model proposes: what the user says, and which of the calls were made for it."""

    message: str
    calls: tuple[Made, ...]


@dataclass(frozen=True)
class Explorer:
    """Makes the tasks of one file from these seed tasks, in turns.

    most_calls: of one exploration. least_calls: of a task.
    """

    model: Model
    seeds: Sequence[Task]
    seed: int
    most_calls: int = 12
    least_calls: int = 2
    temperature: float = 1.0
    max_tokens: int = 2048

    async def attempt(self, number: int, draw: int) -> MadeTask:
        """One draw for the task of this number; Rejected says why it came to nothing."""
        seed_task = self.seeds[number % len(self.seeds)]
        sampling = Sampling(self.temperature, 1.0, self.max_tokens)
        walk = f"{NAME}/{number}/{draw // _DRAWS_PER_EXPLORATION}"
        made = await explore(self.model, seed_task, self.most_calls, sampling, walk)
        worked = [each for each in made if each.call.succeeded]
        if len(worked) < self.least_calls:
            raise Rejected("too_few_calls")
        name = f"{NAME}/{number}/{draw}"
        turns = await self._propose(worked, sampling, seed_task, f"{name}/propose")
        task, intents = self._task(turns, seed_task, number)
        if does_nothing(task.task, [each for turn in turns for each in turn.calls]):
            raise Rejected("does_nothing")
        if problem_of(task.task) is not None:
            raise Rejected("unsound")
        await require_recovery(self.model, task.task, intents, self.max_tokens, f"{name}/read")
        return task

    def repeats(self, task: MadeTask, others: Iterable[MadeTask]) -> str | None:
        """See :class:`shelf.testbed.synthesis.llm.production.Source`."""
        for other in others:
            if other.users == task.users:
                return "same_messages"
            if other.provenance.source == task.provenance.source:
                if other.reference == task.reference:
                    return "same_calls"
                if similarity(filter(None, task.users), filter(None, other.users)) >= NEAR_SAME:
                    return "same_messages"
        return None

    async def _propose(self, made: Sequence[Made], sampling: Sampling, seed_task: Task, name: str) -> tuple[Turn, ...]:
        answer = await self.model.ask(proposing(made), sampling, name)
        found = object_with(answer.text, "turns")
        turns = _turns(found, made) if found else None
        if turns is None:
            raise Rejected("cut" if answer.truncated else "unreadable")
        if any(pasted(turn.message, all_tools(seed_task), _values(turn)) for turn in turns):
            raise Rejected("names_tools")
        if copied_from(turn.message for turn in turns):
            raise Rejected("copies_benchmark")
        chosen = [each for turn in turns for each in turn.calls]
        if len(chosen) < self.least_calls:
            raise Rejected("too_few_calls")
        if repeats_a_call(chosen):
            raise Rejected("repeats_a_call")
        if not results_again(seed_task, chosen):
            raise Rejected("needs_other_calls")
        return turns

    def _task(self, turns: Sequence[Turn], seed_task: Task, number: int) -> tuple[MadeTask, tuple[Intent, ...]]:
        users = tuple(turn.message for turn in turns)
        calls = [[each.call for each in turn.calls] for turn in turns]
        intents = told_intents(calls, users, seed_task)
        reference = tuple(tuple(map(str, made)) for made in calls)
        task = MadeTask(
            category="base",
            level="train",
            kinds=("results",) if any(each.free for intent in intents for each in intent.expected) else (),
            classes=seed_task.involved_classes,
            config=dict(seed_task.initial_config),
            users=users,
            reference=reference,
            demonstration=reference,
            provenance=Provenance(
                writer=NAME, seed=self.seed, number=number, model=self.model.name, source=seed_task.id
            ),
        )
        return task.named(), intents


def _turns(answer: Mapping[str, Any], made: Sequence[Made]) -> tuple[Turn, ...] | None:
    """The turns in an answer {"turns": [{"message", "calls"}]}; calls count from 1, ascending over all turns."""
    turns = answer["turns"]
    if not isinstance(turns, list) or not 1 <= len(turns) <= _MOST_TURNS:
        return None
    found, last = [], 0
    for turn in turns:
        message, numbers = (turn.get("message"), turn.get("calls")) if isinstance(turn, dict) else (None, None)
        if not isinstance(message, str) or not 0 < len(message.strip()) <= _MOST_CHARACTERS:
            return None
        if not isinstance(numbers, list) or not numbers or not all(type(number) is int for number in numbers):
            return None
        if numbers != sorted(set(numbers)) or not last < numbers[0] <= numbers[-1] <= len(made):
            return None
        last = numbers[-1]
        found.append(Turn(message.strip(), tuple(made[number - 1] for number in numbers)))
    return tuple(found)


def _values(turn: Turn) -> list[Any]:
    return [value for each in turn.calls for value in each.call.arguments.values()]
