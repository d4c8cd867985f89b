"""The writer `explore`: a model acts in the state of a training task, then says what a user could have wanted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field, StrictInt

from env_service.environments.bfcl.catalog import Task, all_tools, load_tasks
from env_service.environments.bfcl.splits import TRAIN_SCENARIOS, side_of_scenario
from env_service.environments.bfcl.task_file import MadeTask, Provenance
from seal.diagnosis.categories import SCENARIO_COUNT, task_id
from shelf.suites.chat import Sampling
from shelf.testbed.synthesis.check import evaluation_state
from shelf.testbed.synthesis.llm.exploration import CallResult, does_nothing, explore, results_again
from shelf.testbed.synthesis.llm.intent import Intent, told_intents
from shelf.testbed.synthesis.llm.json_answer import Message, read_answer
from shelf.testbed.synthesis.llm.model import Model, Rejected
from shelf.testbed.synthesis.llm.prompts import proposing
from shelf.testbed.synthesis.llm.recovery import require_recovery
from shelf.testbed.synthesis.llm.words import copied_from, pasted, similarity
from shelf.testbed.synthesis.verify import problem_of

NAME = "explore"
NEAR_SAME = 0.8
"""Two tasks of a seed task whose messages share this part of their words are the same."""

_DRAWS_PER_EXPLORATION = 2


class _Turn(BaseModel):
    """What the user says, and the numbers of the calls that were made for it, from 1."""

    message: Message
    calls: Annotated[list[StrictInt], Field(min_length=1)]


class _Proposal(BaseModel):
    turns: Annotated[list[_Turn], Field(min_length=1, max_length=5)]

    def among(self, count: int) -> bool:
        """Whether the numbers ascend over all turns and are those of `count` calls."""
        numbers = [number for turn in self.turns for number in turn.calls]
        return numbers == sorted(set(numbers) & set(range(1, count + 1)))


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
        worked = [one for one in made if one.call.succeeded]
        if len(worked) < self.least_calls:
            raise Rejected("too_few_calls")
        name = f"{NAME}/{number}/{draw}"
        proposal = await self._propose(worked, sampling, seed_task, f"{name}/propose")
        users = tuple(turn.message for turn in proposal.turns)
        calls = [[worked[number - 1] for number in turn.calls] for turn in proposal.turns]
        self._require_sense([one for turn in calls for one in turn], seed_task)
        intents = told_intents([[one.call for one in turn] for turn in calls], users, seed_task)
        task = self._task(users, calls, intents, seed_task, number)
        if does_nothing(task.task, [one for turn in calls for one in turn]):
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

    async def _propose(self, worked: Sequence[CallResult], sampling: Sampling, seed_task: Task, name: str) -> _Proposal:
        answer = await self.model.ask(proposing(worked), sampling, name)
        proposal = read_answer(answer.text, _Proposal)
        if proposal is None or not proposal.among(len(worked)):
            raise Rejected("cut" if answer.truncated else "unreadable")
        for turn in proposal.turns:
            values = [value for number in turn.calls for value in worked[number - 1].call.arguments.values()]
            if pasted(turn.message, all_tools(seed_task), values):
                raise Rejected("names_tools")
        if copied_from(turn.message for turn in proposal.turns):
            raise Rejected("copies_benchmark")
        return proposal

    def _require_sense(self, chosen: Sequence[CallResult], seed_task: Task) -> None:
        if len(chosen) < self.least_calls:
            raise Rejected("too_few_calls")
        if len({(str(one.call), one.result) for one in chosen}) < len(chosen):
            raise Rejected("repeats_a_call")
        if not results_again(seed_task, chosen):
            raise Rejected("needs_other_calls")

    def _task(
        self,
        users: tuple[str, ...],
        calls: Sequence[Sequence[CallResult]],
        intents: Sequence[Intent],
        seed_task: Task,
        number: int,
    ) -> MadeTask:
        reference = tuple(tuple(str(one.call) for one in turn) for turn in calls)
        made_by = Provenance(writer=NAME, seed=self.seed, number=number, model=self.model.name, source=seed_task.id)
        return MadeTask(
            category="base",
            level="train",
            kinds=("results",) if any(expected.free for intent in intents for expected in intent.expected) else (),
            classes=seed_task.involved_classes,
            config=dict(seed_task.initial_config),
            users=users,
            reference=reference,
            demonstration=reference,
            provenance=made_by,
        ).named()


def seed_tasks(scenarios: Sequence[int] | None) -> tuple[Task, ...]:
    """The plain tasks of these scenarios, of all that may be used by default, in whose states a model may look around.

    ValueError for one that belongs to the evaluation side, or that starts in the state of one
    that does.
    """
    if scenarios is None:
        every = (load_tasks()[task_id("base", scenario)] for scenario in TRAIN_SCENARIOS)
        return tuple(task for task in every if evaluation_state(task.initial_config) is None)
    return tuple(map(_seed_task, dict.fromkeys(scenarios)))


def _seed_task(scenario: int) -> Task:
    if not 0 <= scenario < SCENARIO_COUNT:
        raise ValueError(f"--scenarios has {scenario}: the benchmark's are 0 to {SCENARIO_COUNT - 1}.")
    if side_of_scenario(scenario) == "eval":
        raise ValueError(f"Scenario {scenario} belongs to the evaluation side: name scenarios of the training side.")
    task = load_tasks()[task_id("base", scenario)]
    if shared := evaluation_state(task.initial_config):
        raise ValueError(f"Scenario {scenario} starts in {shared}: name another one.")
    return task
