"""Many tasks at once from a model: bounded concurrency, draws counted by what became of them, a clean stop."""

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from env_service.environments.bfcl.task_file import MadeTask, write_task_file
from seal.system.net import is_loopback
from shelf.suites.chat import Address, ChatClient
from shelf.testbed.synthesis.llm.answers import AnswerFile
from shelf.testbed.synthesis.llm.budget import Tokens
from shelf.testbed.synthesis.llm.model import Model, Rejected, Stop, Stopped

FUTILE_DRAWS = 40
"""After this many draws without a single task no more are made."""


class Source(Protocol):
    """What makes tasks with a model."""

    async def attempt(self, number: int, draw: int) -> MadeTask:
        """One draw for the task of this number; raises Rejected or Stopped."""

    def repeats(self, task: MadeTask, others: Iterable[MadeTask]) -> str | None:
        """The reason for which a task is one of the others again, None if it is not."""


@dataclass(frozen=True)
class RequestSettings:
    """How a model is asked."""

    model: str
    address: Address
    concurrency: int = 8
    """Tasks at once."""
    timeout_s: float = 120.0
    """For one attempt at a request."""
    attempts: int = 4
    """For each request, before it counts as failed."""
    max_tokens_total: int | None = None
    """Limit on the tokens of prompts and answers, those of earlier runs for the same output included."""
    draws: int = 9
    """Per task."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of every request."""
    backoff_s: float = 5.0
    """The pause after a failed request, doubled each time."""

    def __post_init__(self) -> None:
        if min(self.concurrency, self.attempts, self.draws) < 1 or self.timeout_s <= 0:
            raise ValueError("--concurrency, --draws and --timeout must be positive.")


@dataclass
class Production:
    """What has come of the draws, and what it cost."""

    wanted: int
    """Tasks that were asked for."""
    total: Tokens
    """Of all answers, those of earlier runs included."""
    spent: Tokens = field(default_factory=Tokens)
    """Of this run's answers."""
    tasks: dict[int, MadeTask] = field(default_factory=dict)
    """By number."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Draws that came to nothing, by reason."""
    given_up: int = 0
    """Numbers for which every draw failed."""
    stopped: Stop | None = None
    """Why the run stopped early, if it did."""

    @property
    def draws(self) -> int:
        """The draws that came to an end."""
        return len(self.tasks) + self.rejected.total()

    @property
    def reasons(self) -> str:
        """The rejected draws by reason, the most frequent first."""
        return ", ".join(f"{reason} {count}" for reason, count in self.rejected.most_common())


def make_file(
    settings: RequestSettings,
    source_of: Callable[[Model], Source],
    count: int,
    seed: int,
    out: Path,
    on_draw: Callable[[Production], None],
) -> Production:
    """Make the tasks 0 to count - 1 and write those that were made, in order.

    Answers are kept beside `out`, so that the same call continues after an interruption.
    The first Ctrl-C lets the requests in flight finish, a second one does not. ValueError or
    EndpointRefused if nothing can be asked.
    """
    answers = AnswerFile(out)
    production = Production(count, answers.spent)
    try:
        asyncio.run(_ask(settings, source_of, seed, answers, production, on_draw))
    finally:
        answers.close()
    if production.tasks:
        write_task_file((task for _, task in sorted(production.tasks.items())), out)
    return production


async def _ask(
    settings: RequestSettings,
    source_of: Callable[[Model], Source],
    seed: int,
    answers: AnswerFile,
    production: Production,
    on_draw: Callable[[Production], None],
) -> None:
    address, local = settings.address, is_loopback(urlsplit(settings.address.url).hostname or "")
    client = ChatClient(
        address.url,
        settings.model,
        settings.timeout_s,
        settings.attempts,
        address.key_variable,
        proxies=not local,
        extra=settings.extra,
    )
    what = {"seed": seed, **({"extra": dict(settings.extra)} if settings.extra else {})}
    model = Model(client, settings.model, answers, settings.max_tokens_total, what, settings.backoff_s)
    try:
        await client.check(listed=False)  # a provider need not list every model that it serves
        with _stopping_at_ctrl_c(model):
            await _produce(model, source_of(model), production, settings, on_draw)
    finally:
        await client.close()
    production.spent, production.stopped = model.spent, model.stopped


@contextmanager
def _stopping_at_ctrl_c(model: Model) -> Iterator[None]:
    """Stop the model at the first SIGINT or SIGTERM; the next one ends the program as usual."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    loop, signals = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)

    def restore() -> None:
        for number in signals:
            loop.remove_signal_handler(number)

    def stop() -> None:
        restore()
        model.stop("interrupted", "Interrupted; the same command resumes.")

    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        restore()


async def _produce(
    model: Model,
    source: Source,
    production: Production,
    settings: RequestSettings,
    on_draw: Callable[[Production], None],
) -> None:
    """Make tasks into `production` until all are made or given up, or the model is stopped."""
    waiting = iter(range(production.wanted))

    async def one(number: int) -> None:
        for draw in range(settings.draws):
            try:
                task = await source.attempt(number, draw)
                if reason := source.repeats(task, production.tasks.values()):
                    raise Rejected(reason)
                production.tasks[number] = task
            except Rejected as rejection:
                production.rejected[rejection.reason] += 1
            on_draw(production)
            if number in production.tasks:
                return
            if not production.tasks and production.draws >= FUTILE_DRAWS:
                model.stop(
                    "futile",
                    f"None of {production.draws} draws gave a task ({production.reasons}): try another model, or look "
                    "at the answers beside the output.",
                )
        production.given_up += 1

    async def worker() -> None:
        try:
            for number in waiting:
                await one(number)
        except Stopped:
            return

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(settings.concurrency):
                group.create_task(worker())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the first one ended the others
