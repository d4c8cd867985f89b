"""uvicorn's HTTP protocol with what it lacks: deadlines for what is under way, and a cap on connections."""

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_ROOM = 0.75
"""Share of the process's descriptors that connections may use; workers and files need the others."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 20\r\n\r\nToo many connections"


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection whose request does not arrive, or whose answer is not taken, within `transfer_s` seconds."""

    transfer_s = 60.0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._arriving_since: float | None = None
        self._leaving_since: float | None = None
        self._next_look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > _ROOM * resource.getrlimit(resource.RLIMIT_NOFILE)[0]:
            transport.write(_FULL)
            transport.close()
        self._arriving_since = self.loop.time()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next_look is not None:
            self._next_look.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._arriving_since = self.loop.time()
        super().on_message_begin()

    def on_message_complete(self) -> None:
        self._arriving_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self.pipeline:
            self._arriving_since = self.loop.time()
        super().on_response_complete()

    def _look(self) -> None:
        now = self.loop.time()
        if self.flow.read_paused and self._arriving_since is not None:  # we do not read; the client may be sending
            self._arriving_since = now
        if not self.transport.get_write_buffer_size():
            self._leaving_since = None
        elif self._leaving_since is None:
            self._leaving_since = now
        waits = (since for since in (self._arriving_since, self._leaving_since) if since is not None)
        if now - min(waits, default=now) > self.transfer_s:
            self.transport.abort()
        else:
            self._next_look = self.loop.call_later(self.transfer_s / 4, self._look)
