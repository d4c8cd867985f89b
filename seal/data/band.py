"""The band: tasks that a policy solves sometimes, so that a group of rollouts has spread.

A group whose rollouts all fail or all pass has no group-relative advantage.
Measured on repeated samples of training tasks, never on the evaluation side.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seal.data.rows import refuse_evaluation_tasks
from seal.files import file_sha256
from seal.records.validation import read_log


@dataclass(frozen=True)
class BandTask:
    """One task (turns: the prefix measured, -1 for the whole task) and how often it passed."""

    task_id: str
    turns: int
    passed: int
    samples: int

    @property
    def rate(self) -> float:
        """Share of the samples that passed."""
        return self.passed / self.samples


@dataclass(frozen=True)
class Band:
    """Tasks whose pass rate lies strictly between low and high, and where it was measured."""

    low: float
    high: float
    measured: int
    tasks: tuple[BandTask, ...]
    source: str
    source_sha256: str
    data_hashes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary that Selection.task_file reads."""
        return {
            "low": self.low,
            "high": self.high,
            "measured": self.measured,
            "source": self.source,
            "source_sha256": self.source_sha256,
            "data_hashes": list(self.data_hashes),
            "tasks": [
                {"task_id": t.task_id, "turns": t.turns, "rate": t.rate, "passed": t.passed, "n": t.samples}
                for t in self.tasks
            ],
        }


def find_band(log: Path | str, low: float = 0.0, high: float = 1.0, source: str | None = None) -> Band:
    """The band of a validation log with repeated samples a task.

    Lines that failed for reasons other than the policy are left out. source: how
    the log is named in the result (its path by default). ValueError when the log
    has bad lines, only one sample a task, tasks of the evaluation side, or
    nothing inside the band.
    """
    if not 0.0 <= low < high <= 1.0:
        raise ValueError(f"The band from {low} to {high} is empty: give 0 <= low < high <= 1.")
    path = Path(log)
    lines = read_log(path).without_bad()
    refuse_evaluation_tasks((line.task_id for line in lines), "the training band")
    counts: dict[tuple[str, int], list[bool]] = {}
    for line in lines:
        if line.infra is None:
            counts.setdefault(line.task, []).append(line.passed)
    if max(map(len, counts.values()), default=0) < 2:
        raise ValueError(f"{path} has one sample a task: a band needs several (validate with val_kwargs.n above 1).")
    tasks = [BandTask(task, turns, sum(passed), len(passed)) for (task, turns), passed in counts.items()]
    inside = tuple(task for task in tasks if low < task.rate < high)
    if not inside:
        raise ValueError(
            f"None of the {len(tasks)} tasks in {path} has a pass rate strictly between {low} and {high}: "
            "take more samples, shorter prefixes or another checkpoint."
        )
    return Band(
        low=low,
        high=high,
        measured=len(tasks),
        tasks=inside,
        source=source or str(path),
        source_sha256=file_sha256(path),
        data_hashes=tuple(sorted({line.data_hash for line in lines if line.data_hash})),
    )
