"""One launcher an experiment folder: a lock that the kernel lets go when its holders have ended, however they ended."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from seal.launch.errors import LaunchError

LOCK_FILE = "launcher.lock"


@contextmanager
def locked(run_dir: Path) -> Iterator[int]:
    """Hold the folder's lock; yields its descriptor, which the training process inherits and so holds too.

    Raises LaunchError when another launcher, or what is left of its training
    process, works in the folder. A file without a living holder is no obstacle.
    """
    path = run_dir / LOCK_FILE
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise LaunchError(
            f"{path} cannot be written ({error.strerror}): set seal.run_dir to another folder."
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LaunchError(_in_use(run_dir, path)) from None
        except OSError as error:
            raise LaunchError(
                f"{path} cannot be locked ({error.strerror}): set seal.run_dir to a file system that knows flock."
            ) from error
        holder = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _in_use(run_dir: Path, path: Path) -> str:
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
        pid, host, since = holder["pid"], holder["host"], holder["since"]
    except (ValueError, KeyError, TypeError):
        return f"{run_dir} is in use by another launcher: wait for it, or set another trainer.experiment_name."
    if host == platform.node() and not psutil.pid_exists(pid):
        return (
            f"The launcher of {run_dir} (process {pid}) is gone, but what it started is still ending: start again in "
            "a few seconds."
        )
    return (
        f"{run_dir} is in use by the launcher with process {pid} on {host} since {since}: stop that one, wait for "
        "it, or set another trainer.experiment_name."
    )
