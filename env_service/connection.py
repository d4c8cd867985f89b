"""The connection to one worker process: requests out, answers back in the same order."""

import asyncio
import time
from collections import deque
from typing import Any, cast

from env_service.channel import FrameBuffer, frame


class WorkerGone(Exception):
    """The worker ended before it answered."""


class Connection(asyncio.Protocol):
    """The service's end. waiting_since: when the oldest unanswered request became the oldest, in monotonic seconds."""

    def __init__(self) -> None:
        self._gone = False
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[asyncio.Future[bytes], Any]] = deque()
        self._answered = 0
        self.waiting_since = 0.0
        self._received = FrameBuffer()

    @property
    def busy(self) -> bool:
        """True while a request waits for its answer."""
        return bool(self._waiting) and not self._gone

    def unanswered(self, number: int) -> Any:
        """Return the `about` of the request with this number, from 1; None if it was answered or never sent."""
        index = number - self._answered - 1
        return self._waiting[index][1] if 0 <= index < len(self._waiting) else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for payload in self._received.feed(data):
            future, _ = self._waiting.popleft()
            self._answered += 1
            self.waiting_since = time.monotonic()
            if not future.done():
                future.set_result(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        for future, _ in self._waiting:
            if not future.done():
                future.set_exception(WorkerGone())

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def send(self, payload: bytes, about: Any) -> asyncio.Future[bytes]:
        """Send one request; the future gets the answer's frame, or WorkerGone. about: see `unanswered`."""
        if self._gone or self._transport is None:
            raise WorkerGone
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            self.waiting_since = time.monotonic()
        self._waiting.append((future, about))
        self._transport.write(frame(payload))
        return future
