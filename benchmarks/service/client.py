"""The leanest client of the service: one kept-alive connection, JSON in and out."""

import asyncio
import re
from typing import Any

import orjson

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Connection:
    """One HTTP/1.1 connection; one request at a time."""

    def __init__(self, host: str, port: int, deadline: float = 60.0) -> None:
        """Connects on first use; `deadline` is that of one request in seconds."""
        self._host, self._port, self._deadline = host, port, deadline
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, verb: str, body: Any) -> tuple[int, Any]:
        """POST /verb; (status, decoded answer)."""
        payload = body if isinstance(body, bytes) else orjson.dumps(body)
        head = f"POST /{verb} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(payload)}\r\n\r\n"
        async with asyncio.timeout(self._deadline):
            self._streams = self._streams or await asyncio.open_connection(self._host, self._port)
            reader, writer = self._streams
            writer.write(head.encode() + payload)
            answer = await reader.readuntil(b"\r\n\r\n")
            data = await reader.readexactly(int(_LENGTH.search(answer)[1]))
        return int(answer[9:12]), orjson.loads(data)

    async def verb(self, verb: str, body: Any) -> Any:
        """POST /verb and return its data; RuntimeError with the service's sentence otherwise."""
        status, answer = await self.post(verb, body)
        if status != 200:
            raise RuntimeError(f"/{verb} answered {status}: {answer}")
        return answer.get("data")

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
