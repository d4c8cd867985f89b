"""A program of an official tool, run to its end within deadlines."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from seal.launch.service import last_output
from seal.system.processes import start, stop_tree

POLL_S = 0.5
GRACE_S = 5.0


class Deadlines(NamedTuple):
    """total_s: for the whole program; stall_s: without any progress, None if nothing shows it."""

    total_s: float
    stall_s: float | None = None


def finish(
    command: Sequence[str],
    *,
    log: Path,
    cwd: Path,
    env: Mapping[str, str],
    deadlines: Deadlines,
    progress: Callable[[], int] = lambda: 0,
) -> str:
    """Run a program and wait for its end; it and all that it started end with this call, Ctrl-C included.

    Returns what went wrong in a few words, or an empty text. progress: called twice a second;
    the program stalls when the number stays the same.
    """
    cwd.mkdir(parents=True, exist_ok=True)
    process = start(command, log=log, cwd=cwd, env=env)
    try:
        began = moved = time.monotonic()
        reached = progress()
        while process.poll() is None:
            time.sleep(POLL_S)
            now = time.monotonic()
            if (count := progress()) != reached:
                reached, moved = count, now
            if now - began > deadlines.total_s:
                return f"stopped after {deadlines.total_s:.0f} s"
            if deadlines.stall_s is not None and now - moved > deadlines.stall_s:
                return f"stopped after {deadlines.stall_s:.0f} s without a result"
        progress()
        code = process.returncode
        return f"ended with code {code}: {last_output(log)}" if code else ""
    finally:
        stop_tree(process, GRACE_S)
