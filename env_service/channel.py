"""The channel between the service and a worker process: frames over a socket, and a page of memory.

A frame is four bytes of length, then the payload. The page says what the worker is doing: the worker writes it; the
service reads it to enforce deadlines and, after the worker's death, to learn which call killed it.
"""

import mmap
import os
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

_LENGTH = struct.Struct(">I")
_LAYOUT = struct.Struct("<qqqddd")

Position = tuple[int, int]
"""A guarded call within an episode: (step, call of that step), both counted from 0."""


def frame(*parts: bytes) -> bytes:
    """One frame with the joined parts as its payload."""
    return b"".join((_LENGTH.pack(sum(map(len, parts))), *parts))


class FrameBuffer:
    """Splits a byte stream into the payloads of its frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add received bytes and yield each payload that is now complete."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            payload = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield payload


class Activity(NamedTuple):
    """One state of the page.

    request: number of the current request, from 1. step, call: position of the guarded call. call_began, request_began:
    seconds of the monotonic clock, 0 when none is running. processor_seconds: what the worker had used by then.
    """

    request: int
    step: int
    call: int
    call_began: float
    request_began: float
    processor_seconds: float


class ActivityPage:
    """The shared page, mapped from a file descriptor that both processes hold."""

    def __init__(self, descriptor: int) -> None:
        """Map the page; the descriptor may be closed afterwards."""
        self._memory = mmap.mmap(descriptor, _LAYOUT.size)
        self._request = 0
        self._request_began = 0.0

    @staticmethod
    def allocate() -> int:
        """Return the descriptor of a new, zeroed page."""
        descriptor = os.memfd_create("env_service_activity")
        os.ftruncate(descriptor, _LAYOUT.size)
        return descriptor

    def read(self) -> Activity:
        return Activity(*_LAYOUT.unpack_from(self._memory))

    def begin_request(self) -> None:
        self._request += 1
        self._request_began = time.monotonic()
        self._write((0, 0), 0.0)

    def end_request(self) -> None:
        self._request_began = 0.0
        self._write((0, 0), 0.0)

    def begin(self, position: Position) -> None:
        self._write(position, time.monotonic())

    def end(self) -> None:
        self._write((0, 0), 0.0)

    def _write(self, position: Position, call_began: float) -> None:
        _LAYOUT.pack_into(
            self._memory, 0, self._request, *position, call_began, self._request_began, time.process_time()
        )
