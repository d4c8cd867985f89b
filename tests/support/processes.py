"""Processes as a test sees them: one that has ended is gone, reaped or not, and may end at any look."""

from collections.abc import Iterable, Iterator

import psutil


def runs(pid: int) -> bool:
    """Whether a process has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def commands(processes: Iterable[psutil.Process]) -> Iterator[tuple[psutil.Process, list[str], dict[str, str]]]:
    """Those of the processes that run, each with its command line and its environment."""
    for process in processes:
        try:
            yield process, process.cmdline(), process.environ()
        except psutil.Error:
            continue
