"""Frames between the service and its workers: four bytes of length, then the payload."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_LENGTH = struct.Struct(">I")


def frame(*parts: bytes) -> bytes:
    """One frame that holds the joined parts."""
    return b"".join((_LENGTH.pack(sum(map(len, parts))), *parts))


class FrameBuffer:
    """Cuts a byte stream into the payloads of its frames."""

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
