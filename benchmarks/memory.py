"""The peak memory of a program, read while it runs.

On CUDA, it is the memory that nvidia-smi reports for the program's own processes, on the GPU on which they hold most.
In a container, nvidia-smi may not say which process holds memory; then it is the growth of the GPU's memory since the
start. On the CPU, it is the proportional set size of the program's processes.
"""

import subprocess
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

import psutil

POLL_S = 1.0
ANSWER_DEADLINE_S = 30


class NoAnswer(Exception):
    """nvidia-smi is missing, fails or hangs; the text is one clause."""


@dataclass(frozen=True)
class Peak:
    """The largest reading, None without any. own: whether it covers only the program's processes."""

    bytes: int | None
    own: bool

    def __str__(self) -> str:
        whose = "" if self.own else " on the whole GPU"
        return "unknown" if self.bytes is None else f"{self.bytes / (1 << 30):.1f} GiB{whose}"


def query(what: str, *fields: str) -> list[list[str]]:
    """The rows of `nvidia-smi --query-<what>`; NoAnswer if it does not give any."""
    command = ["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_DEADLINE_S, check=True)
    except FileNotFoundError as error:
        raise NoAnswer("nvidia-smi is not installed here") from error
    except subprocess.SubprocessError as error:
        raise NoAnswer(f"nvidia-smi does not answer ({error})") from error
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def used() -> dict[str, int]:
    """The bytes in use by UUID, for each GPU that reports them (others report [N/A])."""
    return {uuid: int(mib) << 20 for uuid, mib in query("gpu", "uuid", "memory.used") if mib.isdigit()}


def used_by(processes: Mapping[int, psutil.Process]) -> Counter[str]:
    """The bytes that these processes hold on each GPU, by UUID, according to nvidia-smi."""
    found: Counter[str] = Counter()
    for uuid, pid, mib in query("compute-apps", "gpu_uuid", "pid", "used_memory"):
        if mib.isdigit() and int(pid) in processes:
            found[uuid] += int(mib) << 20
    return found


def family(pid: int) -> dict[int, psutil.Process]:
    """A process and everything that it started, by process id; empty if it has ended."""
    try:
        first = psutil.Process(pid)
        return {process.pid: process for process in (first, *first.children(recursive=True))}
    except psutil.NoSuchProcess:
        return {}


class PeakMemory:
    """Watches a process and everything that it starts during a `with` block; `peak` is the result.

    Raises NoAnswer if nvidia-smi does not answer even at the start.
    """

    def __init__(self, pid: int, backend: str, poll_s: float = POLL_S):
        self._pid = pid
        self._poll_s = poll_s
        self._read = self._read_gpus if backend == "cuda" else self._read_host
        self._before = used() if backend == "cuda" else {}
        self._own: Counter[str] = Counter()
        self._growth: Counter[str] = Counter()
        self._shared = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def peak(self) -> Peak:
        """The largest of the readings that succeeded."""
        own = self._shared or max(self._own.values(), default=0)
        return Peak(own or max(self._growth.values(), default=0) or None, own > 0)

    def _watch(self) -> None:
        while not self._done.wait(self._poll_s):
            with suppress(NoAnswer):
                self._read(family(self._pid))

    def _read_gpus(self, processes: Mapping[int, psutil.Process]) -> None:
        # | keeps the larger figure per GPU.
        self._own |= used_by(processes)
        self._growth |= Counter({gpu: size - self._before.get(gpu, size) for gpu, size in used().items()})

    def _read_host(self, processes: Mapping[int, psutil.Process]) -> None:
        total = 0
        for process in processes.values():
            try:
                total += process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        self._shared = max(self._shared, total)
