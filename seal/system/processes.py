"""Child processes that never outlive the launcher."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
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
    """The first words of a command that the kernel kills when this process dies; () where util-linux lacks them.

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


def stop_session(leader: int, name: str, value: str) -> None:
    """Kill our descendants in a child's session, or with this variable in their environment; not the child itself.

    Orphans are our descendants only after `adopt_orphans`.
    """
    for _ in range(3):  # a process that is killed can have started another one before
        family = []
        for each in psutil.Process().children(recursive=True):
            with suppress(psutil.Error, ProcessLookupError):
                if each.pid != leader and (os.getsid(each.pid) == leader or each.environ().get(name) == value):
                    family.append(each)
        if not family:
            break
        _kill(family)


def _kill(family: Sequence[psutil.Process]) -> None:
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    psutil.wait_procs(family, timeout=10)
