"""One worker: a process that plays episodes, the deadlines it runs under, and its replacement.

Simulators run only in worker processes. A worker answers one request at a time over a socket pair and records its
current call in shared memory (`channel.py`). When a call runs past its deadline, or the process dies, a new process
takes its place, and the call that caused it is noted as broken and never run again.
"""

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from env_service.channel import Activity, ActivityPage
from env_service.connection import Connection
from env_service.encoding import encode
from env_service.protocol import RequestRefused
from env_service.settings import ServerSettings
from env_service.worker_main import OUT_OF_MEMORY

_LOG = logging.getLogger(__name__)
_WAITING_FACTOR = 6
START_SECONDS = 120.0
_SCHEDULED_TIME = 2
"""The bits in a process clock's number that select the time of all threads (as in clock_getcpuclockid(3))."""


@dataclass(eq=False)
class EpisodeHistory:
    """The opening, messages and faults of an episode: enough to rebuild it in another process.

    steps: (content, truncated, role) of each message. broken: (step, call, reason) of calls that must not run again.
    generation: which process of its worker holds it, -1 for none. lost: why it cannot continue, empty while it can.
    suspect: the position at which its worker died once.
    """

    id: str
    env_type: str
    task_id: str
    params: Mapping[str, Any]
    steps: list[tuple[str, bool, str]] = field(default_factory=list)
    broken: list[tuple[int, int, str]] = field(default_factory=list)
    generation: int = -1
    lost: str = ""
    suspect: tuple[int, int] | None = None

    def opening(self) -> dict[str, Any]:
        return {"env_type": self.env_type, "task_id": self.task_id, "params": self.params, "broken": self.broken}


class Worker:
    """One slot of the pool and the process that currently fills it.

    generation: how many processes filled the slot before this one. restarts: how many
    processes were replaced. task_files: what each process loads when it starts. culprit: the
    episode in whose request the last process ended, None for none.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self.task_files = list(settings.task_files)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection = Connection()
        self._activity: ActivityPage | None = None
        self._overdue = False
        self._starting = asyncio.Lock()
        self.generation = -1
        self.restarts = 0
        self.culprit: EpisodeHistory | None = None

    async def start(self) -> None:
        ours, theirs = socket.socketpair()
        page = ActivityPage.allocate()
        self._activity = ActivityPage(page)
        command = [sys.executable, "-m", "env_service.worker_main", str(theirs.fileno()), str(page)]
        command += [str(self._settings.memory_mb), json.dumps(self._settings.environments), *self.task_files]
        # Simulators print sets in hash order: with a fixed seed, all services answer alike.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        try:
            self._process = subprocess.Popen(
                command, env=environment, pass_fds=(theirs.fileno(), page), stdin=subprocess.DEVNULL
            )
        finally:
            theirs.close()
            os.close(page)
        ours.setblocking(False)
        _, connection = await asyncio.get_running_loop().create_connection(Connection, sock=ours)
        # Together: a request that comes too early finds the old ones, and waits in `replace`.
        self._connection, self._overdue, self.generation = connection, False, self.generation + 1

    async def stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        self._connection.close()

    async def request(self, op: str, history: EpisodeHistory | None, arguments: Mapping[str, Any]) -> bytes:
        """The answer to one request, as JSON; RequestRefused with the worker's reason, WorkerGone if it ended first."""
        payload = encode([op, history.id if history else "", arguments])
        header, _, body = (await self._connection.send(payload, history)).partition(b"\n")
        status = orjson.loads(header)
        if not status["ok"]:
            raise RequestRefused(body.decode("utf-8", "replace"), code=status.get("code"))
        return body

    @property
    def busy(self) -> bool:
        return self._connection.busy

    def kill_if_overdue(self) -> None:
        """Kill the process when its call or request is past its deadline; pending requests get WorkerGone.

        Deadlines count the worker's processor time, so that a busy machine is not mistaken for a slow call. A call that
        waits without computing gets six times as long, and so does a request that the worker does not read.
        """
        if self._process is None or self._activity is None or not self.busy:
            return
        now = self._activity.read()
        limit, unread = self._deadline(now), not now.request_began
        if unread:  # a process that has read no request yet may still be starting
            limit = _WAITING_FACTOR * limit if now.request else START_SECONDS
        elapsed = time.monotonic() - (now.call_began or now.request_began or self._connection.waiting_since)
        if elapsed <= limit:
            return
        if unread or elapsed > _WAITING_FACTOR * limit or self._processor_seconds() - now.processor_seconds > limit:
            self._overdue = True
            self._process.kill()

    def _deadline(self, activity: Activity) -> float:
        return self._settings.call_seconds if activity.call_began else self._settings.request_seconds

    def _processor_seconds(self) -> float:
        """The process's time, read from its clock without a descriptor, because the service may have none left."""
        assert self._process is not None
        try:
            return time.clock_gettime(~self._process.pid << 3 | _SCHEDULED_TIME)
        except OSError:  # it has just ended; pending requests learn that from the connection
            return 0.0

    async def replace(self, generation: int) -> None:
        """Start a new process, unless that has happened since `generation`; record what ended the old one.

        RequestRefused if none can be started; the next call tries again.
        """
        async with self._starting:
            if self.generation != generation:
                return
            await self.stop()
            if self.restarts == self.generation:  # else an earlier call recorded it but could not start a process
                self._record_cause()
                self.restarts += 1
            try:
                await self.start()
            except OSError as error:
                raise RequestRefused(f"No worker can be started ({error.strerror}): send it again.", 503) from error

    def _record_cause(self) -> None:
        """Mark the call or episode that killed the process.

        The cause is certain if we killed the process past a deadline or it ran out
        of memory. Any other death may have come from outside, so only a second death at
        the same call, or in the same episode outside calls, is attributed to it.
        """
        assert self._activity is not None and self._process is not None
        last = self._activity.read()
        self.culprit = history = self._connection.unanswered(last.request) if last.request_began else None
        if history is None:
            return
        position = (last.step, last.call) if last.call_began else (-1, -1)
        if self._overdue:
            limit = f"exceeded {self._deadline(last):g} s"
        elif self._process.returncode == OUT_OF_MEMORY:
            limit = f"exceeded {self._settings.memory_mb} MB of memory"
        elif history.suspect == position:
            limit = "ended its process"
        else:
            history.suspect = position
            return
        if last.call_began:
            _LOG.warning("call %d of step %d of episode %s %s", last.call, last.step, history.id, limit)
            history.broken.append((last.step, last.call, f"the call {limit}"))
        else:
            _LOG.warning("episode %s %s outside a call", history.id, limit)
            history.lost = f"The episode was closed: handling its last message {limit}; see the service's log."
