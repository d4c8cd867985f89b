"""The writer `explore`: a model acts in the state of a training task, then says what a user could have wanted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field, StrictInt

from env_service.environments.bfcl.catalog import Task, all_tools, load_tasks
from env_service.environments.bfcl.splits import TRAIN_SCENARIOS
from env_service.environments.bfcl.task_file import MadeTask, Provenance
from seal.diagnosis.categories import task_id
from shelf.suites.chat import Sampling
from shelf.testbed.synthesis.check import evaluation_state
from shelf.testbed.synthesis.llm.expected import Expected, expected_calls
from shelf.testbed.synthesis.llm.exploration import CallResult, does_nothing, explore, results_again
from shelf.testbed.synthesis.llm.json_answer import UserMessage, read_answer
from shelf.testbed.synthesis.llm.model import EndpointModel, Rejected
from shelf.testbed.synthesis.llm.prompts import proposing
from shelf.testbed.synthesis.llm.recovery import require_recovery
from shelf.testbed.synthesis.llm.words import is_copied, pasted, similarity
from shelf.testbed.synthesis.verify import problem_of

NAME = "explore"
NEAR_SAME = 0.8
"""Two tasks of a seed task whose messages share this part of their words are the same."""

_DRAWS_PER_EXPLORATION = 2
_LEAST_CALLS = 2
"""Of a task."""


class _Turn(BaseModel):
    """A message of the user, and the numbers of the calls that were made for it, from 1."""

    message: UserMessage
    calls: Annotated[list[StrictInt], Field(min_length=1)]


class _Proposal(BaseModel):
    turns: Annotated[list[_Turn], Field(min_length=1, max_length=5)]

    def among(self, count: int) -> bool:
        """Return whether the numbers ascend over all turns and are those of `count` calls."""
        numbers = [number for turn in self.turns for number in turn.calls]
        return numbers == sorted(set(numbers) & set(range(1, count + 1)))


@dataclass(frozen=True)
class Explorer:
    """Makes the tasks of one file from these seed tasks, in turns; most_calls: of one exploration."""

    model: EndpointModel
    seeds: Sequence[Task]
    seed: int
    most_calls: int
    sampling: Sampling

    async def attempt(self, number: int, draw: int) -> MadeTask:
        """One draw for the task of this number; Rejected says why it came to nothing."""
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
        """The reason for which a task is one of the others again, None if it is not."""
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


def seed_tasks(scenarios: Sequence[int] | None) -> tuple[Task, ...]:
    """The plain tasks of these scenarios, of all that may be used by default, in whose states a model may look around.

    ValueError for one that does not belong to the training side, or that starts in the state of one of the other.
    """
    if others := sorted(set(scenarios or ()) - set(TRAIN_SCENARIOS)):
        raise ValueError(f"Scenario {others[0]} does not belong to the training side: name another one.")
    tasks = {number: load_tasks()[task_id("base", number)] for number in scenarios or TRAIN_SCENARIOS}
    states = {number: evaluation_state(task.initial_config) for number, task in tasks.items()}
    if scenarios and (shared := next((number for number in tasks if states[number]), None)) is not None:
        raise ValueError(f"Scenario {shared} starts in {states[shared]}: name another one.")
    return tuple(task for number, task in tasks.items() if states[number] is None)
