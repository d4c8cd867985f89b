"""Many tasks at once from a model: bounded concurrency, draws counted by outcome, a clean stop."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from env_service.environments.bfcl.task_file import MadeTask, write_task_file
from shelf.suites.endpoint import ChatClient, Endpoint
from shelf.testbed.synthesis.llm.explorer import Explorer
from shelf.testbed.synthesis.llm.model import AnswerFile, EndpointModel, Rejected, Stop, Stopped, TokenUsage

_ATTEMPTS = 4
"""Attempts per request, before it counts as failed."""


@dataclass(frozen=True)
class RequestSettings:
    """Settings of the requests to a model."""

    endpoint: Endpoint
    concurrency: int = 8
    """Tasks at once."""
    timeout_s: float = 120.0
    """Limit per attempt at a request."""
    max_tokens_total: int | None = None
    """Limit on the tokens of prompts and answers, including earlier runs for the same output."""
    draws: int = 4
    """Draws per task."""

    def __post_init__(self) -> None:
        if min(self.concurrency, self.draws) < 1 or self.timeout_s <= 0:
            raise ValueError("--concurrency, --draws and --timeout must be positive.")


@dataclass
class Production:
    """The result of the draws, and its cost.

    wanted: tasks that were asked for. total: the usage of all answers, including those of earlier runs. tasks: by
    number. rejected: failed draws by reason. given_up: numbers whose draws all failed. stopped: why it ended early.
    """

    wanted: int
    total: TokenUsage
    tasks: dict[int, MadeTask] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    given_up: int = 0
    stopped: Stop | None = None

    @property
    def draws(self) -> int:
        """The number of finished draws."""
        return len(self.tasks) + self.rejected.total()


def make_file(
    settings: RequestSettings,
    explorer_of: Callable[[EndpointModel], Explorer],
    count: int,
    seed: int,
    out: Path,
    on_draw: Callable[[Production], None],
) -> Production:
    """Try to make the tasks 0 to count - 1, and write those that were made, in order.

    Answers are kept beside `out`, so that the same call continues after an interruption.
    ValueError or EndpointRefused if nothing can be asked.
    """
    answers = AnswerFile(out)
    production = Production(count, answers.spent)

    async def ask() -> None:
        settings.endpoint.require()
        client = ChatClient(settings.endpoint, settings.timeout_s, _ATTEMPTS)
        model = EndpointModel(client, answers, settings.max_tokens_total, seed)
        try:
            await _produce(explorer_of(model), production, settings, on_draw)
        finally:
            await client.close()
        production.stopped = model.stopped

    try:
        asyncio.run(ask())
    finally:
        answers.close()
    if production.tasks:
        write_task_file((task for _, task in sorted(production.tasks.items())), out)
    return production


async def _produce(
    explorer: Explorer, production: Production, settings: RequestSettings, on_draw: Callable[[Production], None]
) -> None:
    """Make tasks into `production`; once the model is stopped, only those whose answers are kept."""
    waiting = iter(range(len(explorer.seeds)))

    async def one(number: int) -> None:
        undecided = False
        for draw in range(settings.draws):
            try:
                task = await explorer.attempt(number, draw)
                if reason := explorer.repeats(task, production.tasks.values()):
                    raise Rejected(reason)
                production.tasks[number] = task
            except Rejected as rejection:
                production.rejected[rejection.reason] += 1
            except Stopped:  # the answers to a later draw may be kept
                undecided = True
                continue
            on_draw(production)
            if number in production.tasks:
                return
        production.given_up += not undecided

    async def worker() -> None:
        for seed in waiting:  # its tasks one after the other: which one repeats another must not depend on speed
            for number in range(seed, production.wanted, len(explorer.seeds)):
                await one(number)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(settings.concurrency):
                group.create_task(worker())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the first one cancelled the others
