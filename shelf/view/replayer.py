"""Replays in a process of their own, which a call that never ends cannot outlive."""

import contextlib
import resource
from collections.abc import Mapping
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Lock
from typing import Any

DEADLINE_S = 60.0
START_S = 300.0
"""Until the process has loaded the benchmark: seconds on a quiet machine, more beside a training run."""
READY = "ready"
MEMORY_BYTES = 8 << 30
"""Address space of the process: a logged call may ask a simulator for any amount."""


class Replayer:
    """Replays lines in a worker process, one at a time."""

    def __init__(self, deadline_s: float = DEADLINE_S):
        self._deadline_s = deadline_s
        self._lock = Lock()
        self._worker: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._ready = False

    def replay(self, value: Mapping[str, Any], step: int, launches: Path | None = None) -> dict[str, Any]:
        """What `replay` returns; {"why": sentence} if the line cannot be played again."""
        with self._lock:
            pipe = self._pipe if self._worker is not None and self._worker.is_alive() else None
            pipe = pipe or self._start()
            try:
                if pipe.poll(0 if self._ready else START_S):
                    self._ready = pipe.recv() == READY
                if self._ready:
                    pipe.send((dict(value), step, launches))
                    if pipe.poll(self._deadline_s):
                        return pipe.recv()
            except (EOFError, OSError):
                self._end()
                return {"why": "The process that replays has ended: a call may have asked for too much memory."}
            self._end()
            return {"why": f"The replay did not finish within {self._deadline_s:g} s."}

    def _start(self) -> Connection:
        self._end()
        context = get_context("spawn")
        self._pipe, other = context.Pipe()
        self._worker = context.Process(target=_work, args=(other,), name="seal-view-replay", daemon=True)
        self._worker.start()
        other.close()
        return self._pipe

    def close(self) -> None:
        """End the worker, also while it is waited for."""
        if (worker := self._worker) is not None:
            worker.kill()

    def _end(self) -> None:
        if self._worker is not None and self._pipe is not None:
            self._pipe.close()
            self._worker.kill()
            self._worker.join(timeout=10)
        self._worker = self._pipe = None
        self._ready = False


def _work(pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        from shelf.view.replay import replay  # loads the benchmark, which only this process needs

        pipe.send(READY)
        while True:
            value, step, launches = pipe.recv()
            try:
                answer = replay(value, step, launches)
            except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                answer = {"why": f"This line cannot be played again: {error}"}
            pipe.send(answer)
