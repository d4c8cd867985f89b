"""The peak memory of a run, read while it runs.

On CUDA it is what nvidia-smi says of the run's own processes, on the GPU where
they hold most. In a container nvidia-smi may not tell whose process is whose;
then it is what the GPU holds beyond what it held before the run. On the CPU it
is what the run's processes share and own (proportional set size).
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

POLL_S = 1.0
ANSWER_DEADLINE_S = 30
OWN = "of the run's own processes, on the GPU where they hold most"
BEYOND = (
    "what the GPU held beyond what it held before the run, other programs' included: nvidia-smi does not tell the "
    "run's processes here"
)
SHARED = "of all processes together (proportional set size)"
UNKNOWN = "not known: nvidia-smi gave no figure"


class NoAnswer(Exception):
    """nvidia-smi is not there, fails or hangs: the text is one clause."""


@dataclass(frozen=True)
class Peak:
    """The largest reading, None where there is none; the UUIDs of the GPUs used; and what the figure is."""

    bytes: int | None
    gpus: tuple[str, ...]
    note: str

    @property
    def gib(self) -> float | None:
        return None if self.bytes is None else self.bytes / (1 << 30)


def query(what: str, *fields: str) -> list[list[str]]:
    """The rows of `nvidia-smi --query-<what>`; NoAnswer where it gives none."""
    command = ["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_DEADLINE_S, check=True)
    except FileNotFoundError as error:
        raise NoAnswer("there is no nvidia-smi here") from error
    except subprocess.SubprocessError as error:
        raise NoAnswer(f"nvidia-smi gives no answer ({error})") from error
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]


def held() -> dict[str, int]:
    """Bytes in use on each GPU that tells; by UUID."""
    # [N/A] stands where there is no figure.
    return {uuid: int(mib) << 20 for uuid, mib in query("gpu", "uuid", "memory.used") if mib.isdigit()}


def held_by(family: Mapping[int, psutil.Process]) -> Counter[str]:
    """Bytes that these processes hold on each GPU, as far as nvidia-smi knows them; by UUID."""
    found: Counter[str] = Counter()
    for uuid, pid, mib in query("compute-apps", "gpu_uuid", "pid", "used_memory"):
        if mib.isdigit() and int(pid) in family:
            found[uuid] += int(mib) << 20
    return found


class PeakMemory:
    """Watches a process and all it starts from `with` to its end; then `peak` is what it found.

    Raises NoAnswer where nvidia-smi does not answer even before the run.
    """

    def __init__(self, pid: int, backend: str):
        self._pid = pid
        self._read = self._read_gpus if backend == "cuda" else self._read_host
        self._before = held() if backend == "cuda" else {}
        self._own: Counter[str] = Counter()
        self._beyond: Counter[str] = Counter()
        self._shared = 0
        self._readings = self._failed = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def peak(self) -> Peak:
        """The largest reading of those that succeeded."""
        missed = f"; {self._failed} of {self._readings} readings failed" if self._failed else ""
        if self._shared:
            return Peak(self._shared, (), SHARED)
        for found, note in ((self._own, OWN), (self._beyond, BEYOND)):
            most = max(found.values(), default=0)
            if most:
                # Of several GPUs a run uses all alike; what grew less belongs to somebody else.
                return Peak(most, tuple(gpu for gpu, size in found.items() if 2 * size >= most), note + missed)
        return Peak(None, (), UNKNOWN + missed)

    def _watch(self) -> None:
        while not self._done.wait(POLL_S):
            self._readings += 1
            try:
                self._read(self._family())
            except NoAnswer:
                self._failed += 1

    def _family(self) -> dict[int, psutil.Process]:
        try:
            first = psutil.Process(self._pid)
            return {process.pid: process for process in (first, *first.children(recursive=True))}
        except psutil.NoSuchProcess:
            return {}

    def _read_gpus(self, family: Mapping[int, psutil.Process]) -> None:
        # | keeps the larger figure of each GPU.
        self._own |= held_by(family)
        self._beyond |= Counter({gpu: size - self._before.get(gpu, size) for gpu, size in held().items()})

    def _read_host(self, family: Mapping[int, psutil.Process]) -> None:
        total = 0
        for process in family.values():
            try:
                total += process.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        self._shared = max(self._shared, total)
