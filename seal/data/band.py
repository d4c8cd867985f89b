"""The band: tasks that a policy solves sometimes, so that the rewards of a group differ.

A group whose rollouts all fail or all pass has no group-relative advantage.
Measured on repeated samples of training tasks, never on the evaluation side.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
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
    """Tasks with a pass rate strictly between low and high, and the log in which it was measured."""

    low: float
    high: float
    measured: int
    tasks: tuple[BandTask, ...]
    source: str
    source_sha256: str
    data_hashes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary that Selection.task_file reads."""
        tasks = [
            {"task_id": t.task_id, "turns": t.turns, "rate": t.rate, "passed": t.passed, "n": t.samples}
            for t in self.tasks
        ]
        return asdict(self) | {"tasks": tasks}


def find_band(log: Path | str, low: float = 0.0, high: float = 1.0) -> Band:
    """The band of a validation log with several samples per task.

    Lines that failed for reasons other than the policy are left out. ValueError if
    the log has bad lines, only one sample per task, tasks of the evaluation side,
    or nothing inside the band.
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
        raise ValueError(f"{path} has one sample per task: a band needs several (validate with val_kwargs.n above 1).")
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
        source=str(path),
        source_sha256=file_sha256(path),
        data_hashes=tuple(sorted({line.data_hash for line in lines if line.data_hash})),
    )
