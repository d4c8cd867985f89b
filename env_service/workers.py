"""Worker processes: sticky episodes, a deadline for every call, replacement without a trace.

Simulators run here and nowhere else. Each worker answers one request at a time
over a socket pair and writes into shared memory what it is doing. A watchman
reads that while requests are in flight; when a call has run past its deadline,
or the process has died, the worker is replaced. The call that did it is noted
as broken and never run again; every episode of the worker is rebuilt from its
messages when it is next needed, and the requests that were waiting are sent
again, so that their clients notice nothing but the delay.
"""

from __future__ import annotations

import asyncio
import json
import logging
import mmap
import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import orjson

from env_service.encoding import encode
from env_service.environments import base
from env_service.settings import ServiceSettings
from env_service.worker_main import CLOCK, LENGTH, OUT_OF_MEMORY

_LOG = logging.getLogger(__name__)
_WATCH_SECONDS = 0.05
_MAX_RESTARTS_A_REQUEST = 8
_START_SECONDS = 120.0


NO_EPISODE = "no_episode"
EPISODE_BROKEN = "episode_broken"


class RequestRefused(ValueError):
    """The request cannot be answered; the message says why and what to mend."""

    def __init__(self, message: str, status: int = 400, code: str | None = None) -> None:
        """status is the HTTP status of the answer; code tells programs what they can act on."""
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True)
class Answer:
    """A worker's answer: a small header and a body that is JSON already."""

    header: Mapping[str, Any]
    body: bytes


@dataclass(eq=False)
class EpisodeLog:
    """All that is needed to build an episode again: how it was opened, and its messages."""

    id: str
    env_type: str
    task_id: str
    params: Mapping[str, Any]
    steps: list[tuple[str, bool]] = field(default_factory=list)
    broken: list[tuple[int, int, str]] = field(default_factory=list)
    worker: Worker | None = None
    life: int = -1
    lost: str = ""
    suspect: tuple[int, int] | None = None

    def opening(self) -> dict[str, Any]:
        """The arguments that open it."""
        return {"env_type": self.env_type, "task_id": self.task_id, "params": self.params, "broken": self.broken}


class _WorkerGone(Exception):
    """The worker ended before it answered."""


class _Connection(asyncio.Protocol):
    """Frames out, frames in, answered in order."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.waiting: deque[asyncio.Future[bytes]] = deque()
        self._buffer = bytearray()
        self.gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            size = LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < LENGTH.size + size:
                return
            frame = bytes(self._buffer[LENGTH.size : LENGTH.size + size])
            del self._buffer[: LENGTH.size + size]
            future = self.waiting.popleft()
            if not future.done():
                future.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        while self.waiting:
            future = self.waiting.popleft()
            if not future.done():
                future.set_exception(_WorkerGone())

    def request(self, payload: bytes) -> asyncio.Future[bytes]:
        if self.gone or self.transport is None:
            raise _WorkerGone
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        self.transport.write(LENGTH.pack(len(payload)) + payload)
        return future


class Worker:
    """One slot of the pool and the process that fills it now; `life` counts its processes."""

    def __init__(self, settings: ServiceSettings) -> None:
        """The process starts with :meth:`start`."""
        self._settings = settings
        self._environments = {**base.locations(), **settings.added_environments()}
        self._process: subprocess.Popen[bytes] | None = None
        self._connection = _Connection()
        self._clock: mmap.mmap | None = None
        self._running: deque[tuple[int, EpisodeLog | None]] = deque()
        self._sent = 0
        self._overdue = False
        self._starting = asyncio.Lock()
        self.life = -1
        self.episodes = 0
        self.restarts = 0

    async def start(self) -> None:
        """Start a process and connect to it."""
        ours, theirs = socket.socketpair()
        memory = os.memfd_create("env_service_clock")
        os.ftruncate(memory, CLOCK.size)
        self._clock = mmap.mmap(memory, CLOCK.size)
        command = [sys.executable, "-m", "env_service.worker_main", str(theirs.fileno()), str(memory)]
        command += [str(self._settings.memory_mb), json.dumps(self._environments)]
        self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(), memory), stdin=subprocess.DEVNULL)
        theirs.close()
        os.close(memory)
        ours.setblocking(False)
        self._connection = _Connection()
        self._running.clear()
        self._sent = 0
        self._overdue = False
        self.life += 1
        await asyncio.get_running_loop().create_connection(lambda: self._connection, sock=ours)

    async def stop(self) -> None:
        """End the process and wait for it."""
        if self._process is None:
            return
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        if self._connection.transport is not None:
            self._connection.transport.close()

    async def request(self, op: str, log: EpisodeLog | None, arguments: Mapping[str, Any]) -> Answer:
        """Send one request; RequestRefused with the worker's reason, _WorkerGone when it ended first."""
        payload = encode([op, log.id if log else "", arguments])
        connection = self._connection
        answered = connection.request(payload)
        self._sent += 1
        number = self._sent
        self._running.append((number, log))
        frame = await answered
        while connection is self._connection and self._running and self._running[0][0] <= number:
            self._running.popleft()
        header, _, body = frame.partition(b"\n")
        answer = Answer(orjson.loads(header), body)
        if not answer.header["ok"]:
            raise RequestRefused(body.decode("utf-8", "replace"))
        return answer

    @property
    def busy(self) -> bool:
        """True while a request is in flight."""
        return bool(self._connection.waiting)

    def overdue(self) -> bool:
        """True when what the process is doing now has run past its deadline.

        Deadlines count the processor time of the worker, so that a busy machine is
        not mistaken for a slow call; a call that waits instead gets six times as long.
        """
        if self._clock is None or not self.busy:
            return False
        _, _, _, call_began, request_began, cpu_before = CLOCK.unpack_from(self._clock)
        if not request_began:
            return False
        limit = self._settings.call_seconds if call_began else self._settings.request_seconds
        elapsed = time.monotonic() - (call_began or request_began)
        return elapsed > limit and (elapsed > 6 * limit or self._processor_seconds() - cpu_before > limit)

    def _processor_seconds(self) -> float:
        assert self._process is not None
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:  # it has just ended; whoever waits on it learns so from its connection
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end_overdue(self) -> None:
        """End the process because it is past a deadline; whoever waits on it learns so."""
        if self._process is not None:
            self._overdue = True
            self._process.kill()

    async def replace(self, life: int) -> None:
        """Start a new process unless somebody has since `life`; note what the old one broke on."""
        async with self._starting:
            if self.life != life:
                return
            await self.stop()
            self._blame()
            self.restarts += 1
            await self.start()

    def _blame(self) -> None:
        """Note what the process was doing when it ended, if that is why it ended.

        It is when we ended it past a deadline or it ran out of memory. A death of
        another kind may have come from outside: only a second one at the same call,
        or outside calls, is laid at its door.
        """
        assert self._clock is not None and self._process is not None
        number, step, call, call_began, request_began, _ = CLOCK.unpack_from(self._clock)
        log = next((log for sent, log in self._running if sent == number), None)
        if log is None or not request_began:
            return
        position = (step, call) if call_began else (-1, -1)
        if self._overdue:
            seconds = self._settings.call_seconds if call_began else self._settings.request_seconds
            limit = f"exceeded {seconds:g} s"
        elif self._process.returncode == OUT_OF_MEMORY:
            limit = f"exceeded {self._settings.memory_mb} MB of memory"
        elif log.suspect == position:
            limit = "ended its process"
        else:
            log.suspect = position
            return
        if call_began:
            _LOG.warning("call %d of step %d of episode %s %s", call, step, log.id, limit)
            log.broken.append((step, call, f"the call {limit}"))
        else:
            log.lost = f"The episode was closed: handling its last message {limit}; the service's log may tell why."
            _LOG.warning("episode %s %s outside a call", log.id, limit)


class WorkerPool:
    """A fixed number of workers; an episode stays with the one it was opened on."""

    def __init__(self, settings: ServiceSettings) -> None:
        """Workers start with :meth:`start`."""
        self._settings = settings
        self._workers = [Worker(settings) for _ in range(settings.worker_count)]
        self._watchman: asyncio.Task[None] | None = None

    @property
    def restarts(self) -> int:
        """How many processes were replaced."""
        return sum(worker.restarts for worker in self._workers)

    async def start(self) -> None:
        """Start every worker and the watchman, and wait until each has answered once."""
        async with asyncio.timeout(_START_SECONDS):
            await asyncio.gather(*(worker.start() for worker in self._workers))
            first = (worker.request("version", None, {"env_type": "bfcl"}) for worker in self._workers)
            try:
                await asyncio.gather(*first)
            except _WorkerGone:
                raise RuntimeError("A worker ended while it started; it says why above.") from None
        self._watchman = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """End every process."""
        if self._watchman is not None:
            self._watchman.cancel()
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    async def ask(self, op: str, arguments: Mapping[str, Any]) -> Answer:
        """A request about no episode, to any worker."""
        worker = min(self._workers, key=lambda worker: worker.busy)
        for _ in range(_MAX_RESTARTS_A_REQUEST):
            life = worker.life
            try:
                return await worker.request(op, None, arguments)
            except _WorkerGone:
                await worker.replace(life)
        raise RequestRefused("The service's workers end as soon as they start: see its log.", 503)

    async def create(self, log: EpisodeLog) -> Answer:
        """Open an episode on the worker that has the fewest."""
        worker = min(self._workers, key=lambda worker: worker.episodes)
        log.worker = worker
        worker.episodes += 1
        try:
            return await self._send("create", log, log.opening())
        except BaseException:
            self._leave(log)
            raise

    async def step(self, log: EpisodeLog, content: str, truncated: bool) -> Answer:
        """Hand on one assistant message and keep it for a rebuild."""
        answer = await self._send("step", log, {"content": content, "truncated": truncated})
        log.steps.append((content, truncated))
        return answer

    async def look(self, op: str, log: EpisodeLog, arguments: Mapping[str, Any]) -> Answer:
        """A request that changes nothing in the episode: evaluate or describe."""
        return await self._send(op, log, arguments)

    async def release(self, log: EpisodeLog) -> None:
        """Forget the episode."""
        worker = log.worker
        self._leave(log)
        if worker is None or log.life != worker.life:
            return
        try:
            await worker.request("release", log, {})
        except _WorkerGone:
            _LOG.info("the worker of episode %s ended before its release", log.id)

    def _leave(self, log: EpisodeLog) -> None:
        if log.worker is not None:
            log.worker.episodes -= 1
            log.worker = None

    async def _send(self, op: str, log: EpisodeLog, arguments: Mapping[str, Any]) -> Answer:
        """Send, and after a death rebuild the episode and send again."""
        worker = log.worker
        assert worker is not None
        for _ in range(_MAX_RESTARTS_A_REQUEST):
            if log.lost:
                raise RequestRefused(log.lost, code=EPISODE_BROKEN)
            life = worker.life
            try:
                if op != "create" and log.life != life:
                    await worker.request("rebuild", log, {**log.opening(), "steps": log.steps})
                    log.life = life
                answer = await worker.request(op, log, arguments)
                log.life = life
                return answer
            except _WorkerGone:
                await worker.replace(life)
        log.lost = "The episode was closed: its worker ended again and again."
        raise RequestRefused(log.lost, code=EPISODE_BROKEN)

    async def _watch(self) -> None:
        """Kill workers that are past a deadline; whoever waits on them replaces them."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            for worker in self._workers:
                if worker.overdue():
                    worker.end_overdue()
