"""Child processes that never outlive the launcher."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_S = 10.0
"""Seconds within which the kernel ends a process that is killed."""
LIBC = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Make grandchildren whose parent dies our children, so that stopping ours stops them too (Linux)."""
    if sys.platform == "linux":
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start(
    command: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str], keep: Sequence[int] = ()
) -> subprocess.Popen:
    """Start a command in a session of its own, so that Ctrl-C only reaches the launcher; output goes to `log`.

    keep: file descriptors that it inherits. The kernel sends it SIGTERM when the launcher dies, however it dies.
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


@cache
def guard() -> tuple[str, ...]:
    """The first words of a command that the kernel kills when this process dies; () if util-linux lacks them.

    A function between fork and exec would copy the page tables of a process that holds torch.
    """
    words = ("setpriv", "--pdeathsig", "KILL", "--")
    known = shutil.which(words[0]) and not subprocess.run([*words, "true"], capture_output=True).returncode
    return words if known else ()


def stop_tree(process: subprocess.Popen, grace_s: float) -> None:
    """End a process and everything it started: SIGTERM, then after `grace_s` seconds SIGKILL."""
    family = []
    with suppress(psutil.NoSuchProcess):
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
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


def session(leader: int, name: str, value: str) -> set[psutil.Process]:
    """Our descendants in a child's session, or with this variable in their environment; not the child itself.

    Orphans are our descendants only after `adopt_orphans`.
    """
    family = set()
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error, ProcessLookupError):
            theirs = os.getsid(each.pid) == leader or each.environ().get(name) == value
            if theirs and each.pid != leader and each.status() != psutil.STATUS_ZOMBIE:  # a zombie waits for its parent
                family.add(each)
    return family


def stop_session(leader: int, name: str, value: str, keep: Set[psutil.Process] = frozenset()) -> None:
    """Kill the processes of a `session`, but for those to keep."""
    for _ in range(3):  # a killed process can have started another one before
        family = session(leader, name, value) - keep
        if not family:
            break
        _kill(family)


def resident(pids: Iterable[int]) -> int:
    """Bytes of memory that processes hold; one that has ended holds none."""
    held = 0
    for pid in pids:
        with suppress(psutil.Error):
            held += psutil.Process(pid).memory_info().rss
    return held


def _kill(family: Collection[psutil.Process]) -> None:
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    deadline = time.monotonic() + KILL_S
    while (family := [each for each in family if not _gone(each)]) and time.monotonic() < deadline:
        time.sleep(0.005)


def _gone(process: psutil.Process) -> bool:
    """Whether a process has ended; one that another process has started may wait for it as a zombie."""
    with suppress(ChildProcessError):
        return os.waitpid(process.pid, os.WNOHANG)[0] != 0
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE
    return True
