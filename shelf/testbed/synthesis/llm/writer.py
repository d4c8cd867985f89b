"""The writer `llm`: a model writes the messages of a sampled path, and must find the path again in its words."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

from env_service.environments.bfcl.catalog import Task, all_tools
from env_service.environments.bfcl.task_file import MadeTask, Provenance
from seal.diagnosis.categories import Level
from shelf.suites.chat import Sampling
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.llm.intent import Intent, path_intents
from shelf.testbed.synthesis.llm.json_answer import Message, read_answer
from shelf.testbed.synthesis.llm.model import Model, Rejected
from shelf.testbed.synthesis.llm.prompts import texts, writing
from shelf.testbed.synthesis.llm.recovery import require_recovery
from shelf.testbed.synthesis.llm.words import copied_from, pasted, says, without
from shelf.testbed.synthesis.make import made_task
from shelf.testbed.synthesis.path import CallPath
from shelf.testbed.synthesis.sampler import SamplerSettings, sample_path
from shelf.testbed.synthesis.stage import RejectedDraw
from shelf.testbed.synthesis.verify import problem_of

NAME = "llm"
_DRAWS_PER_PATH = 3
"""Draws before another path is taken: if every failure gave up its path, tasks would be easier than paths are."""
_MOST_PATHS = 10_000


class _Messages(BaseModel):
    messages: list[Message]


@dataclass(frozen=True)
class LlmWriter:
    """Makes the tasks of one file; seed, level and settings as for the grammar.

    temperature, max_tokens: of the request for messages; the reader answers at 0.
    """

    model: Model
    seed: int
    level: Level = "train"
    settings: SamplerSettings = field(default_factory=SamplerSettings)
    temperature: float = 1.0
    max_tokens: int = 2048

    async def attempt(self, number: int, draw: int) -> MadeTask:
        """One draw for the task of this number; Rejected says why it came to nothing."""
        provenance = Provenance(writer=NAME, seed=self.seed, number=number, model=self.model.name)
        path = self.path_of(number, draw)
        unsaid = _unsaid(path, self.level)
        intents = path_intents(path, unsaid)
        name = f"{self.level}/{number}/{draw}"
        users = await self._write(path, intents, unsaid, name)
        task = made_task(path, users, self.level, provenance)
        await require_recovery(self.model, task.task, intents, self.max_tokens, f"{name}/read")
        return task

    def repeats(self, task: MadeTask, others: Iterable[MadeTask]) -> str | None:
        """See :class:`shelf.testbed.synthesis.llm.production.Source`."""
        return "repeats" if any(task.users == other.users for other in others) else None

    def path_of(self, number: int, draw: int) -> CallPath:
        """The path of a draw; its task is sound whatever the words, because the verifier sees only calls."""
        rng = random.Random(f"{self.seed}/{self.level}/{number}/{draw // _DRAWS_PER_PATH}")
        for _ in range(_MOST_PATHS):
            try:
                path = sample_path(rng, self.level, self.settings)
            except RejectedDraw:
                continue
            if problem_of(_unsaid(path, self.level)) is None:
                return path
        raise ValueError(f"None of {_MOST_PATHS} draws gave a path: widen the classes or the turns.")

    async def _write(self, path: CallPath, intents: Sequence[Intent], task: Task, name: str) -> tuple[str | None, ...]:
        rng = random.Random(f"{self.seed}/{name}")
        plain = Grammar().write(path, "train", rng)
        gists = [said if intent.unclear else None for intent, said in zip(intents, plain, strict=True)]
        request = writing(intents, gists, task, rng.choice(texts()["styles"]))
        answer = await self.model.ask(request, Sampling(self.temperature, 1.0, self.max_tokens), f"{name}/write")
        spoken = [intent for intent in intents if intent.asking is not None]
        read = read_answer(answer.text, _Messages)
        if read is None or len(read.messages) != len(spoken):
            raise Rejected("cut" if answer.truncated else "unreadable")
        for message, intent in zip(read.messages, spoken, strict=True):
            _require_wording(message, intent, task)
        said = iter(read.messages)
        users = tuple(None if intent.asking is None else next(said) for intent in intents)
        if copied_from(users):
            raise Rejected("copies_benchmark")
        return users


def _unsaid(path: CallPath, level: Level) -> Task:
    """The task of a path before it has words."""
    provenance = Provenance(writer=NAME, seed=0, number=0)
    return made_task(path, tuple(turn and "" for turn in path.turns), level, provenance).task


def _require_wording(message: str, intent: Intent, task: Task) -> None:
    may_say = (*intent.say, *intent.before)
    if pasted(message, all_tools(task), may_say):
        raise Rejected("names_tools")
    if not all(says(message, value) for value in intent.say):
        raise Rejected("leaves_out")
    hidden = without(message, may_say)
    if any(says(hidden, value) for value in intent.secret if not isinstance(value, bool)):
        raise Rejected("gives_away")
