"""The peak memory of a program, read while it runs.

On CUDA it is the growth since the start of the GPU that grew most, other programs included: in a container nvidia-smi
may not report whose process is whose. On the CPU it is the proportional set size of the program's processes.
"""

import subprocess
import threading
from collections.abc import Mapping
from functools import partial
from typing import Self

import psutil

POLL_S = 1.0
ANSWER_DEADLINE_S = 30


class NoAnswer(Exception):
    """nvidia-smi is missing, fails or hangs; the text is one clause."""


def query(what: str, *fields: str) -> list[list[str]]:
    """The rows of `nvidia-smi --query-<what>`; NoAnswer if it gives none."""
    command = ["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_DEADLINE_S, check=True)
    except FileNotFoundError as error:
        raise NoAnswer("nvidia-smi is not installed here") from error
    except subprocess.SubprocessError as error:
        raise NoAnswer(f"nvidia-smi does not answer ({error})") from error
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def used() -> dict[str, int]:
    """Bytes in use by UUID, for each GPU that reports them ([N/A] otherwise)."""
    return {uuid: int(mib) << 20 for uuid, mib in query("gpu", "uuid", "memory.used") if mib.isdigit()}


def grown(before: Mapping[str, int]) -> int:
    """The bytes by which the GPU that grew most has grown."""
    return max((size - before.get(gpu, size) for gpu, size in used().items()), default=0)


def family(pid: int) -> dict[int, psutil.Process]:
    """A process and everything that it started, by process id; empty if it has ended."""
    try:
        first = psutil.Process(pid)
        return {process.pid: process for process in (first, *first.children(recursive=True))}
    except psutil.NoSuchProcess:
        return {}


def shared(pid: int) -> int:
    """The proportional set size of a process and everything that it started, in bytes."""
    total = 0
    for process in family(pid).values():
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


class PeakMemory:
    """Watches a program for the time of a `with` block; `peak` is the largest reading in bytes, 0 without any.

    Raises NoAnswer if nvidia-smi does not answer even at the start.
    """

    def __init__(self, pid: int, backend: str, poll_s: float = POLL_S):
        self.peak = 0
        self._poll_s = poll_s
        self._read = partial(grown, used()) if backend == "cuda" else partial(shared, pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(self._poll_s):
            try:
                self.peak = max(self.peak, self._read())
            except NoAnswer:
                continue
