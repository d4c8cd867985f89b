"""The second opinion: a reader who sees only messages and tools must recover what they ask for."""

from collections.abc import Sequence

from env_service.environments.bfcl.catalog import Task
from shelf.suites.chat import Sampling
from shelf.testbed.synthesis.llm.intent import Intent
from shelf.testbed.synthesis.llm.json_answer import object_with
from shelf.testbed.synthesis.llm.model import Model, Rejected
from shelf.testbed.synthesis.llm.prompts import reading
from shelf.testbed.synthesis.llm.recovery import disagreement, read_turns


async def require_recovery(model: Model, task: Task, intents: Sequence[Intent], max_tokens: int, name: str) -> None:
    """Ask for the calls of a task's messages; Rejected if they are not those that are intended."""
    answer = await model.ask(reading(task.users, task), Sampling(0.0, 1.0, max_tokens), name)
    found = object_with(answer.text, "turns")
    turns = read_turns(found, len(task.users)) if found else None
    if turns is None:
        raise Rejected("reader_cut" if answer.truncated else "reader_unreadable")
    if problem := disagreement(intents, turns):
        raise Rejected(problem)
