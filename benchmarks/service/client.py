"""The leanest client of the service: one kept-alive connection, JSON in and out."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson


class Connection:
    """One HTTP/1.1 connection; one request at a time."""

    def __init__(self, host: str, port: int, deadline: float = 60.0) -> None:
        """Connects on first use; `deadline` is that of one request in seconds."""
        self._host, self._port, self._deadline = host, port, deadline
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, verb: str, body: Any) -> tuple[int, Any]:
        """POST /verb; (status, decoded answer)."""
        payload = body if isinstance(body, bytes) else orjson.dumps(body)
        head = f"POST /{verb} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(payload)}\r\n\r\n"
        async with asyncio.timeout(self._deadline):
            if self._writer is None or self._reader is None:
                self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=2**24)
            self._writer.write(head.encode() + payload)
            answer = await self._reader.readuntil(b"\r\n\r\n")
            status = int(answer[9:12])
            length = next(
                int(line.split(b":")[1]) for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length")
            )
            data = await self._reader.readexactly(length)
        return status, orjson.loads(data)

    async def verb(self, verb: str, body: Any) -> Any:
        """POST /verb and return its data; RuntimeError with the service's sentence otherwise."""
        status, answer = await self.post(verb, body)
        if status != 200:
            raise RuntimeError(f"/{verb} answered {status}: {answer}")
        return answer.get("data")

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
            self._reader = self._writer = None
