"""Child processes that never outlive the launcher."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LIBC = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Make grandchildren whose parent dies our children, so that stopping ours stops them too (Linux)."""
    if sys.platform == "linux":
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(
    command: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str], keep: Sequence[int] = ()
) -> subprocess.Popen:
    """Start a command in a session of its own, so that Ctrl-C only reaches the launcher; output goes to `log`.

    keep: file descriptors that the command inherits. The kernel sends it SIGTERM
    when the launcher dies, however it dies.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            list(command),
            cwd=cwd,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=tuple(keep),
            preexec_fn=end_with_parent,
        )


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal when its parent dies, however it dies (Linux)."""
    if sys.platform == "linux":
        LIBC.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def stop_tree(process: subprocess.Popen, grace_s: float) -> None:
    """End a process and everything it started: SIGTERM, then after `grace_s` seconds SIGKILL."""
    try:
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    _kill(family)


def stop_descendants() -> None:
    """Kill every process that descends from this one, orphans adopted by it included."""
    _kill(psutil.Process().children(recursive=True))


def stop_session(leader: int, name: str, value: str) -> None:
    """Kill our descendants in the session of a child, and those that left it with this variable; not the child itself.

    Orphans are our descendants only after `adopt_orphans`.
    """

    def belongs(process: psutil.Process) -> bool:
        with suppress(psutil.Error, ProcessLookupError):
            return process.pid != leader and (os.getsid(process.pid) == leader or process.environ().get(name) == value)
        return False

    for _ in range(3):  # a process that is killed can have started another one before
        if not (family := [each for each in psutil.Process().children(recursive=True) if belongs(each)]):
            break
        _kill(family)


def _kill(family: Sequence[psutil.Process]) -> None:
    for member in family:
        try:
            member.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=10)
