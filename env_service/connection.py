"""The connection to one worker process: requests out, answers back in the same order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson

from env_service.frames import FrameBuffer, frame


class WorkerGone(Exception):
    """The worker ended before it answered."""


@dataclass(frozen=True)
class Answer:
    """A worker's answer: a small header, and a body that is already JSON."""

    header: Mapping[str, Any]
    body: bytes


class Connection(asyncio.Protocol):
    """The service's end of the socket pair."""

    def __init__(self) -> None:
        self.gone = False
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._received = FrameBuffer()

    @property
    def busy(self) -> bool:
        """True while a request waits for its answer."""
        return bool(self._waiting)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for payload in self._received.feed(data):
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(WorkerGone())

    def close(self) -> None:
        """Close the socket."""
        if self._transport is not None:
            self._transport.close()

    def send(self, payload: bytes) -> asyncio.Future[bytes]:
        """Send one request; the future gets the answer's frame, or WorkerGone."""
        if self.gone or self._transport is None:
            raise WorkerGone
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._transport.write(frame(payload))
        return future


def read_answer(payload: bytes) -> Answer:
    """Split an answer's frame into header and body."""
    header, _, body = payload.partition(b"\n")
    return Answer(orjson.loads(header), body)
