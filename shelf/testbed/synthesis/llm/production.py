"""Many tasks at once from a model: bounded concurrency, draws counted by what became of them, a clean stop."""

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from env_service.environments.bfcl.task_file import MadeTask, write_task_file
from seal.system.net import is_loopback
from shelf.suites.chat import Address, ChatClient
from shelf.testbed.synthesis.llm.answers import AnswerFile
from shelf.testbed.synthesis.llm.budget import Tokens
from shelf.testbed.synthesis.llm.model import Model, Rejected, Stop, Stopped


class Source(Protocol):
    """What makes tasks with a model."""

    async def attempt(self, number: int, draw: int) -> MadeTask:
        """One draw for the task of this number; raises Rejected or Stopped."""

    def repeats(self, task: MadeTask, others: Iterable[MadeTask]) -> str | None:
        """The reason for which a task is one of the others again, None if it is not."""


FUTILE_DRAWS = 40
"""After so many draws without a single task no more are made."""


@dataclass
class Yield:
    """What has come of the draws: tasks by number, and the others by reason.

    wanted: how many tasks were asked for. given_up: numbers for which every draw failed.
    """

    wanted: int
    tasks: dict[int, MadeTask] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    given_up: int = 0

    @property
    def draws(self) -> int:
        """The draws that came to an end."""
        return len(self.tasks) + self.rejected.total()

    @property
    def reasons(self) -> str:
        """The rejected draws by reason, the most frequent first."""
        return ", ".join(f"{reason} {count}" for reason, count in self.rejected.most_common())

    def ordered(self) -> Iterator[MadeTask]:
        """The tasks by number."""
        return (task for _, task in sorted(self.tasks.items()))


@dataclass(frozen=True)
class Asking:
    """How a model is asked.

    concurrency: tasks at once. timeout_s: for one attempt at a request; attempts: for each
    request, before it counts as failed. max_tokens_total: limit on the tokens of prompts and
    answers, those of earlier runs for the same output included. draws: per task. extra:
    further fields of every request. backoff_s: the pause after a failed request, doubled each time.
    """

    model: str
    address: Address
    concurrency: int = 8
    timeout_s: float = 120.0
    attempts: int = 4
    max_tokens_total: int | None = None
    draws: int = 9
    extra: Mapping[str, Any] = field(default_factory=dict)
    backoff_s: float = 5.0

    def __post_init__(self) -> None:
        if min(self.concurrency, self.attempts, self.draws) < 1 or self.timeout_s <= 0:
            raise ValueError("--concurrency, --draws and --timeout must be positive.")


class Outcome(NamedTuple):
    """What a run has made, the tokens of its own answers and of all, and why it stopped early, if it did."""

    made: Yield
    spent: Tokens
    total: Tokens
    stopped: Stop | None


def make_file(
    asking: Asking,
    source_of: Callable[[Model], Source],
    count: int,
    seed: int,
    out: Path,
    on_draw: Callable[[Yield, Tokens], None],
) -> Outcome:
    """Make the tasks 0 to count - 1 and write those that were made, in order.

    Answers are kept beside `out`, so that the same call continues after an interruption.
    The first Ctrl-C lets the requests in flight finish, a second one does not. ValueError or
    EndpointRefused if nothing can be asked.
    """
    answers = AnswerFile(out)
    try:
        outcome = asyncio.run(_make(asking, source_of, count, seed, answers, on_draw))
    finally:
        answers.close()
    if outcome.made.tasks:
        write_task_file(outcome.made.ordered(), out)
    return outcome


async def _make(
    asking: Asking,
    source_of: Callable[[Model], Source],
    count: int,
    seed: int,
    answers: AnswerFile,
    on_draw: Callable[[Yield, Tokens], None],
) -> Outcome:
    address, local = asking.address, is_loopback(urlsplit(asking.address.url).hostname or "")
    client = ChatClient(
        address.url,
        asking.model,
        asking.timeout_s,
        asking.attempts,
        address.key_variable,
        proxies=not local,
        extra=asking.extra,
    )
    settings = {"seed": seed, **({"extra": dict(asking.extra)} if asking.extra else {})}
    model = Model(client, asking.model, answers, asking.max_tokens_total, settings, asking.backoff_s)
    made = Yield(count)
    try:
        await client.check(listed=False)  # a provider need not list every model that it serves
        with _stopping_at_ctrl_c(model):
            await _produce(
                model, source_of(model), made, asking.concurrency, asking.draws, lambda made: on_draw(made, model.total)
            )
    finally:
        await client.close()
    return Outcome(made, model.spent, model.total, model.stopped)


@contextmanager
def _stopping_at_ctrl_c(model: Model) -> Iterator[None]:
    """Stop the model at the first SIGINT or SIGTERM; the next one ends the program as usual."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
        model.stop("interrupted", "Interrupted; the same command resumes.")

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop)
    try:
        yield
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)


async def _produce(
    model: Model,
    source: Source,
    made: Yield,
    concurrency: int,
    draws_per_task: int,
    on_draw: Callable[[Yield], None],
) -> None:
    """Make tasks into `made` until all are made or given up, or the model is stopped."""
    waiting = iter(range(made.wanted))

    async def one(number: int) -> None:
        for draw in range(draws_per_task):
            try:
                task = await source.attempt(number, draw)
                if reason := source.repeats(task, made.tasks.values()):
                    raise Rejected(reason)
            except Rejected as rejection:
                made.rejected[rejection.reason] += 1
            else:
                made.tasks[number] = task
            on_draw(made)
            if number in made.tasks:
                return
            if not made.tasks and made.draws >= FUTILE_DRAWS:
                model.stop(
                    "futile",
                    f"None of {made.draws} draws gave a task ({made.reasons}): try another model, or look at the "
                    "answers beside the output.",
                )
        made.given_up += 1

    async def worker() -> None:
        try:
            for number in waiting:
                await one(number)
        except Stopped:
            return

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the first one ended the others
