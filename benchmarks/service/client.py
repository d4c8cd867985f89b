"""The leanest client of the service: one kept-alive connection, JSON in and out."""

import asyncio
from typing import Any, cast

import orjson


class _Http(asyncio.Protocol):
    """Collects one answer at a time; answers carry a content-length."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        head = self._received.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._received.lower().index(b"content-length:", 0, head) + 15
        end = head + 4 + int(self._received[at : self._received.find(b"\r\n", at)])
        if len(self._received) >= end and self.answer is not None and not self.answer.done():
            self.answer.set_result((int(self._received[9:12]), self._received[head + 4 : end]))
            self._received = b""

    def connection_lost(self, exc: Exception | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(ConnectionError("the service closed the connection"))


class Connection:
    """One HTTP/1.1 connection; one request at a time."""

    def __init__(self, host: str, port: int, deadline: float = 60.0) -> None:
        """Connects on first use; `deadline` is that of one request in seconds."""
        self._host, self._port, self._deadline = host, port, deadline
        self._http: _Http | None = None

    async def post(self, verb: str, body: Any) -> tuple[int, Any]:
        """POST /verb; (status, decoded answer)."""
        payload = body if isinstance(body, bytes) else orjson.dumps(body)
        head = f"POST /{verb} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(payload)}\r\n\r\n"
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._deadline):
            if self._http is None:
                _, self._http = await loop.create_connection(_Http, self._host, self._port)
            self._http.answer = loop.create_future()
            assert self._http.transport is not None
            self._http.transport.write(head.encode() + payload)
            status, data = await self._http.answer
        return status, orjson.loads(data)

    async def verb(self, verb: str, body: Any) -> Any:
        """POST /verb and return its data; RuntimeError with the service's sentence otherwise."""
        status, answer = await self.post(verb, body)
        if status != 200:
            raise RuntimeError(f"/{verb} answered {status}: {answer}")
        return answer.get("data")

    def close(self) -> None:
        """Close the connection."""
        if self._http is not None and self._http.transport is not None:
            self._http.transport.close()
            self._http = None
