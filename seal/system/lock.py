"""A lock on a folder that is released when its holders terminate, however they do."""

import fcntl
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

import psutil


class Holder(NamedTuple):
    """The process that took a lock."""

    pid: int
    host: str
    since: str

    @property
    def gone(self) -> bool:
        """True if it ran on this machine and has ended; processes that it started may still hold the lock."""
        return self.host == platform.node() and not psutil.pid_exists(self.pid)

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """The process that a lock's file names, which need not hold it any more; None if it names none."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


class Locked(Exception):
    """Another process holds the lock: `holder`, None if its file does not say who."""

    def __init__(self, holder: Holder | None):
        super().__init__(f"locked by {holder}")
        self.holder = holder


class CannotLock(Exception):
    """The file system does not support locks."""


@contextmanager
def lock(path: Path) -> Iterator[int]:
    """Hold the lock of a file; yields its descriptor, and a process that inherits it holds the lock too.

    The kernel releases the lock when its holders have ended; a file without a living holder blocks nothing. A folder
    that is made for the lock and gets nothing else is removed with it. Raises Locked, CannotLock, or OSError if
    the file cannot be written.
    """
    made = not path.parent.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(Holder.of(path)) from None
        except OSError as error:
            raise CannotLock(error.strerror) from error
        if os.fstat(descriptor).st_nlink == 0:  # its last holder has just removed it
            raise Locked(None)
        holder = Holder(os.getpid(), platform.node(), time.strftime("%Y-%m-%d %H:%M:%S"))
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder._asdict()).encode(), 0)
        try:
            yield descriptor
        finally:
            if made and path.parent.is_dir() and [*path.parent.iterdir()] == [path]:
                shutil.rmtree(path.parent)
    finally:
        os.close(descriptor)
