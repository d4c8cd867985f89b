"""A harness that is a command: a process for each rollout, or one process that asks for the next rollout after each.

A process that GETs its SEAL_NEXT_URL gets the variables of its rollout, and with each further request those of the next
one. Only this request distinguishes such a process from one that plays a single rollout and exits.
"""

import asyncio
import contextlib
import json
import logging
import os
import re
import secrets
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import psutil

from seal.rollout.harness.task import Task
from seal.system.processes import adopt_orphans, guard, resident, session, stop_session
from seal.system.text import last_line

logger = logging.getLogger(__name__)

GRACE_S = 2.0
"""Seconds within which the output of a command must close once the command has ended."""
OUTPUT_BYTES = 65_536
"""Bytes of a command's output, per rollout, that its log keeps."""
BEAT_S = 2.0
"""Seconds between signs of life to a process that waits for a rollout: its client may give up on a silent server."""
LEAK_BYTES = 256 * 2**20
"""Bytes by which a process may grow after its first rollout before another one takes its place."""

HARMLESS = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_\w+|TZ|TERM|TMPDIR|PYTHONPATH|VIRTUAL_ENV|NODE_PATH|LD_LIBRARY_PATH|"
    r"SSL_CERT_(FILE|DIR)|no_proxy|NO_PROXY|OMP_NUM_THREADS"
)
"""The variables that each command inherits: without secrets, because code that the policy wrote may read them."""

_NOTED = re.compile(r"^Traceback .*\n(?:[ \t].*\n|\n)+([\w.]+: .*)\n(?:\S.*\n?){1,3}\Z", re.M)
"""The end of an output whose last error has notes."""
_GROUP = re.compile(r"^(?: *(?:\| |\||\+-[-+ \d]*$))+", re.M)
"""What precedes each line in the traceback of an exception group."""


class Place(asyncio.SubprocessProtocol):
    """A process of a command, and the rollout that it plays. url: where it asks for one.

    free: it has ended its rollout and asked for another one.
    """

    def __init__(self, url: str) -> None:
        self.url, self.free = url, False
        self._process: asyncio.SubprocessTransport | None = None
        self._kept = bytearray()
        self._started, self._exited, self._closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._rollout: Mapping[str, str] | None = None  # the one that it has not asked for yet
        self._asking = self._over = asyncio.get_running_loop().create_future()
        self._asking.set_result(None)
        self._own: Set[psutil.Process] | None = None
        self._bytes = 0

    def connection_made(self, transport: asyncio.SubprocessTransport) -> None:
        """The process has started; it can ask before the code that started it continues."""
        self._process = transport
        self._started.set()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the last OUTPUT_BYTES of the output."""
        self._kept = (self._kept + data)[-OUTPUT_BYTES:]

    def process_exited(self) -> None:
        """End the rollout."""
        self.free = False
        self._exited.set()
        _settle(self._over)
        _settle(self._asking)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing else holds the output."""
        self._closed.set()

    async def next(self) -> AsyncIterator[bytes]:
        """The rollout that the process plays now, as JSON after a blank per BEAT_S of waiting; ends the previous one.

        The later of two requests counts.
        """
        await self._started.wait()
        if self._own is None:  # what it started before it first asks stays, such as the program of a wrapper
            self._own = await asyncio.to_thread(session, self._process.get_pid(), "SEAL_NEXT_URL", self.url)
        _settle(self._asking)
        if self._rollout is None:
            self.free = not self._exited.is_set()
            _settle(self._over)
        asking = self._asking = asyncio.get_running_loop().create_future()
        if self._rollout is not None:
            _settle(asking, self._rollout)
        self._rollout = None
        try:
            while not asking.done():
                yield b" "
                await asyncio.wait([asking], timeout=BEAT_S)
            yield json.dumps(asking.result() or {}).encode()
        finally:
            _settle(asking)

    async def play(self, command: Sequence[str], env: Mapping[str, str], rollout: Mapping[str, str], log: Path) -> str:
        """Play a rollout, given by its variables, to its end; return how it ended, as the end of a sentence.

        command, env: start the process unless it runs. log: for its output. ChildProcessError if a signal ended it.
        """
        self.free, self._over = False, asyncio.get_running_loop().create_future()
        self._kept.clear()
        stays = False
        self._rollout = None if _settle(self._asking, rollout) else rollout
        try:
            if self._process is None:
                await asyncio.get_running_loop().subprocess_exec(
                    lambda: self,
                    *guard(),
                    *command,
                    env={**env, **rollout, "SEAL_NEXT_URL": self.url},
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            await self._over
            stays = self.free and await self._tidy()
        finally:
            if not stays:
                await asyncio.shield(self.stop())
            if self._kept:
                log.parent.mkdir(parents=True, exist_ok=True)
                log.write_bytes(self._kept)
        code = self._process.get_returncode()
        ended = "it asked for another rollout" if stays or code is None else f"exit code {code}"
        said = f"({ended}, {last_words(self._kept.decode(errors='replace'))}; its output: {log})"
        if not stays and (code or 0) < 0:
            raise ChildProcessError(said)
        return f" {said}"

    async def stop(self) -> None:
        """End the process and all that it has started."""
        self.free = False
        if self._process is None:
            return
        if self._process.get_returncode() is None:
            self._process.kill()
        with contextlib.suppress(TimeoutError):  # while it ends, what it has started is neither its child nor ours
            await asyncio.wait_for(self._exited.wait(), GRACE_S)
        await asyncio.to_thread(stop_session, self._process.get_pid(), "SEAL_NEXT_URL", self.url)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), GRACE_S)
        self._process.close()

    async def _tidy(self) -> bool:
        """End what the process has started in its rollout; return whether it may stay (it has not grown too much)."""
        leader = self._process.get_pid()
        await asyncio.to_thread(stop_session, leader, "SEAL_NEXT_URL", self.url, self._own)
        held = resident((leader, *(each.pid for each in self._own)))
        self._bytes = self._bytes or held
        if grown := held > self._bytes + LEAK_BYTES:
            logger.warning("a harness's process has grown to %d MiB: another one takes its place", held >> 20)
        return not grown


class Places(dict[str, Place]):
    """The processes of a worker that may ask for rollouts, by their keys at the gateway `url`; all of one command."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._free: list[str] = []

    async def play(self, command: Sequence[str], task: Task, log: Path, env: Sequence[str]) -> str:
        """Play a rollout with a command; return how it ended, as the end of a sentence.

        env: the names of variables that a process inherits beside HARMLESS.
        """
        adopt_orphans()
        while self._free and not self[self._free[-1]].free:  # it has ended while it waited
            await self.pop(self._free.pop()).stop()
        key = self._free.pop() if self._free else secrets.token_hex(24)
        if key not in self:
            self[key] = Place(f"{self._url}/{key}/next")
        place = self[key]
        inherited = {name: value for name, value in os.environ.items() if name in env or HARMLESS.fullmatch(name)}
        try:
            return await place.play(command, inherited, task.variables, log)
        finally:
            if place.free:
                self._free.append(key)
            else:
                del self[key]

    async def close(self) -> None:
        """End all processes."""
        await asyncio.gather(*(place.stop() for place in self.values()))


def _settle(future: asyncio.Future[Any], value: Any = None) -> bool:
    """Give a future its result, unless it has one; return whether it had none."""
    if missing := not future.done():
        future.set_result(value)
    return missing


def last_words(output: str) -> str:
    """The line of a program's output that says why it ended: the last one, or the error before notes and versions."""
    output = _GROUP.sub("", output)
    said = last_line(output, "no output")
    if raised := _NOTED.search(output):
        return raised[1]
    if not re.match(r"Node\.js v\d", said):
        return said
    errors = (line for line in reversed(output.splitlines()) if re.match(r"[\w$.]*(Error|Exception)\b", line))
    return next(errors, said)
