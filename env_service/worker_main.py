"""A worker process: reads requests from a socket, answers them one after the other.

Started by `workers.py` as `python -m env_service.worker_main SOCKET CLOCK MEMORY_MB ENVIRONMENTS`,
the first two being inherited file descriptors. It ends when the socket does.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from env_service.environments import base
from env_service.host import Host, Position

CLOCK = struct.Struct("<qqqddd")
"""Shared with the service: request number, step, call; when the call and when the request began
(seconds of the monotonic clock; 0 while there is none); the processor time used until then."""
OUT_OF_MEMORY = 70
"""Exit code of a worker whose call found no more memory."""
_RECEIVE_BYTES = 2**18
_GATHER_SECONDS = 0.002
_PR_SET_PDEATHSIG = 1
LENGTH = struct.Struct(">I")


class Clock:
    """Says in shared memory what this process is doing, so that its parent can time it."""

    def __init__(self, descriptor: int) -> None:
        """Map the shared page."""
        self._memory = mmap.mmap(descriptor, CLOCK.size)
        self._request = 0
        self._began = 0.0

    def start(self) -> None:
        """A request begins."""
        self._request += 1
        self._began = time.monotonic()
        self._write((0, 0), 0.0)

    def stop(self) -> None:
        """No request is running."""
        self._began = 0.0
        self._write((0, 0), 0.0)

    def begin(self, position: Position) -> None:
        """A guarded call begins."""
        self._write(position, time.monotonic())

    def end(self) -> None:
        """The guarded call has ended."""
        self._write((0, 0), 0.0)

    def _write(self, position: Position, call_began: float) -> None:
        CLOCK.pack_into(self._memory, 0, self._request, *position, call_began, self._began, time.process_time())


def end_with_parent() -> None:
    """Have the kernel end this process when the service is gone, even in the middle of a call."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def limit_memory(megabytes: int) -> None:
    """Let the address space grow by `megabytes` from here on; beyond it, calls raise MemoryError."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _receive(connection: socket.socket, ahead: Iterator[None]) -> bytes:
    done = object()
    while not select.select((connection,), (), (), 0)[0]:
        if next(ahead, done) is done:
            break
    return connection.recv(_RECEIVE_BYTES)


def serve(connection: socket.socket, clock: Clock, ahead: Iterator[None]) -> None:
    """Answer requests until the other side closes the connection; advance `ahead` while there are none.

    Requests that arrive together are answered together, but no answer waits longer
    than a few milliseconds for its neighbours.
    """
    host, received, answers, first = Host(clock), bytearray(), [], 0.0
    while data := _receive(connection, ahead):
        received += data
        while len(received) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(received)[0]
            if len(received) < end:
                break
            request = bytes(received[LENGTH.size : end])
            del received[:end]
            clock.start()
            op, episode, arguments = orjson.loads(request)
            header, body = host.handle(op, episode, arguments)
            clock.stop()
            head = orjson.dumps(header) + b"\n"
            first = first if answers else time.monotonic()
            answers += [LENGTH.pack(len(head) + len(body)), head, body]
            if time.monotonic() - first > _GATHER_SECONDS:
                connection.sendall(b"".join(answers))
                answers = []
        if answers:
            connection.sendall(b"".join(answers))
            answers = []


def main(arguments: list[str]) -> None:
    """Run one worker."""
    socket_descriptor, clock_descriptor, megabytes, environments = arguments
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service ends its workers itself
    locations = json.loads(environments)
    for name, location in locations.items():
        base.register(name, location)
    ahead = itertools.chain(*[base.get_environment(name).prepare() for name in locations])
    limit_memory(int(megabytes))
    with socket.socket(fileno=int(socket_descriptor)) as connection:
        try:
            serve(connection, Clock(int(clock_descriptor)), ahead)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)  # the clock still names the call; the service notes it and starts another worker


if __name__ == "__main__":
    main(sys.argv[1:])
