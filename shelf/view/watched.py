"""A value read from files that a run may write at any time."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Watched(Generic[Value]):
    """The result of `read`, read again when one of `files()` has changed; read copes with missing files."""

    def __init__(self, files: Callable[[], Iterable[Path]], read: Callable[[], Value]):
        self._files, self._read = files, read
        self._last: tuple[tuple[tuple[str, int, int], ...], Value] | None = None

    @property
    def stamps(self) -> tuple[tuple[str, int, int], ...]:
        """Name, size and time of change of each file that there is now."""
        return tuple((path.name, *stamp[1:]) for path in self._files() if (stamp := stamp_of(path)))

    def get(self) -> Value:
        """The value for the present files."""
        stamps = self.stamps
        if self._last is None or self._last[0] != stamps:
            self._last = stamps, self._read()
        return self._last[1]


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Inode, size in bytes and time of change of a file; None for one that is not written yet, or was dropped."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
