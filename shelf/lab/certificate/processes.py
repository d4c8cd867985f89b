"""The processes that play trajectories again, under limits of time and memory."""

import multiprocessing
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from env_service.environments.registry import DEFAULT, get_environment
from env_service.worker_main import limit_memory

MEMORY_MB = 2048
"""How much a process may grow: a call that wants more fails its replay."""
TRAJECTORY_S = 60.0
"""After which a replay has failed; an episode takes milliseconds, and the service allows a call a few seconds."""
CHUNK = 32
"""Trajectories that a process is given at a time, at most."""


class Line(Protocol):
    """A trajectory as text, and its number for messages."""

    @property
    def number(self) -> int: ...

    @property
    def text(self) -> bytes: ...


OneLine = TypeVar("OneLine", bound=Line)
Replay = Callable[[bytes], Any]
"""What is made of a trajectory's text; it travels to other processes."""


class Result(Protocol):
    """The replays of some trajectories, once they are there."""

    def get(self, timeout: float) -> list[Any]:
        """Wait for them, up to `timeout` seconds; multiprocessing.TimeoutError after that."""


Begun = list[tuple[Sequence[OneLine], Result]]
"""Trajectories in chunks, and the replays of each chunk."""


class Replayers(Protocol):
    """What plays trajectories again."""

    def begin(self, lines: Sequence[OneLine], replay: Replay) -> Begun[OneLine]:
        """Start the replays of some trajectories, in chunks."""


class _Here:
    """Replays in this process, without limits."""

    def begin(self, lines: Sequence[OneLine], replay: Replay) -> Begun[OneLine]:
        return [(lines, _Done([replay(line.text) for line in lines]))]


class _Done(NamedTuple):
    replays: list[Any]

    def get(self, timeout: float) -> list[Any]:
        del timeout
        return self.replays


class _There:
    """Replays in other processes."""

    def __init__(self, pool: Pool, processes: int) -> None:
        self._pool = pool
        self._processes = processes

    def begin(self, lines: Sequence[OneLine], replay: Replay) -> Begun[OneLine]:
        size = max(1, min(CHUNK, -(-len(lines) // (4 * self._processes))))
        chunks = [lines[start : start + size] for start in range(0, len(lines), size)]
        return [(chunk, self._pool.apply_async(_chunk, ([line.text for line in chunk], replay))) for chunk in chunks]


def gathered(begun: Begun[OneLine]) -> Iterator[tuple[OneLine, Any]]:
    """Each trajectory with its replay, in order; ValueError if one does not end."""
    for chunk, result in begun:
        try:
            yield from zip(chunk, result.get(TRAJECTORY_S * (len(chunk) + 1)), strict=True)
        except multiprocessing.TimeoutError:
            raise ValueError(
                f"Records {chunk[0].number} to {chunk[-1].number} cannot be replayed within {TRAJECTORY_S:g} s each "
                f"and {MEMORY_MB} MB: verify them on a machine that is less busy."
            ) from None


@contextmanager
def replayers(processes: int, tasks: Sequence[str]) -> Iterator[Replayers]:
    """Start some processes, none for replays in this one, which sets no limits.

    tasks: lines of a task file with the synthesised tasks that may occur.
    """
    with tempfile.TemporaryDirectory(prefix="seal_verify_") as folder:
        path = Path(folder) / "tasks.jsonl"
        path.write_text("".join(f"{task}\n" for task in tasks), encoding="utf-8")
        if tasks:  # a bad file is refused here, not in a process
            get_environment(DEFAULT).load_task_file(str(path))
        if not processes:
            yield _Here()
            return
        # Not fork: the libraries of this process have threads.
        context = multiprocessing.get_context("spawn")
        with context.Pool(processes, _prepare, (str(path) if tasks else "",)) as pool:
            yield _There(pool, processes)


def _prepare(tasks: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _overdue)
    if tasks:
        get_environment(DEFAULT).load_task_file(tasks)
    limit_memory(MEMORY_MB)


def _overdue(signum: int, frame: object) -> None:
    raise TimeoutError(f"a replay takes more than {TRAJECTORY_S:g} s")


def _chunk(texts: Sequence[bytes], replay: Replay) -> list[Any]:
    found = []
    for text in texts:
        signal.setitimer(signal.ITIMER_REAL, TRAJECTORY_S)
        try:
            found.append(replay(text))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return found
