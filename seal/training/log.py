"""What a run writes for people and for the report: `experiments/<name>/`.

| file | one line or file for | |
| --- | --- | --- |
| `seal_log/steps.jsonl` | a training step | reward, labels, rho, w, Omega, seconds |
| `seal_log/profile.jsonl`, `omega.jsonl` | a training step | C_t and Omega_{t+1} |
| `seal_log/trajectories/N.jsonl` | a trajectory | labels, evidence, dialogue |
| `seal_log/stages.jsonl` | a stage that begins | what the run is doing now |
| `validation_log/N.jsonl` | a validated trajectory | the same fields |
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seal.files import write_text
from seal.records.step import StepReport
from seal.records.trajectory import TrajectoryRecord

STEP_LOGS = ("profile", "omega", "steps")
"""Written in this order: a step that is in `steps` is in all."""


class RunLog:
    """Appends to the run's folder; after a resume, continues where the checkpoint stands."""

    def __init__(self, run_dir: Path):
        self._validation = run_dir / "validation_log"
        self._folder = run_dir / "seal_log"
        self._trajectories = self._folder / "trajectories"
        self._trajectories.mkdir(parents=True, exist_ok=True)

    def stage(self, name: str, *, step: int, of: int) -> None:
        """Note that a stage begins: `validate` (of tasks) or `train` (of steps)."""
        _append(self._folder / "stages.jsonl", {"time": time.time(), "stage": name, "step": step, "of": of})

    def step(self, report: StepReport, seconds: Mapping[str, float]) -> None:
        """Write a finished training step: its figures, C_t and Omega_{t+1}."""
        for name, line in step_lines(report, seconds).items():
            _append(self._folder / f"{name}.jsonl", line)

    def complete(self, lines: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the lines of a checkpoint's step that its run did not come to write."""
        for name, line in lines.items():
            path = self._folder / f"{name}.jsonl"
            if line["step"] not in _steps(path):
                _append(path, line)

    def trajectories(self, step: int, records: Sequence[TrajectoryRecord]) -> None:
        """Write the step's training trajectories, whole or not at all."""
        _write(self._trajectories / f"{step}.jsonl", (_line(record, step) for record in records))

    def validation(self, folder: Path, step: int, records: Sequence[TrajectoryRecord]) -> None:
        """Write a validation, one line a trajectory in the order of tasks and samples."""
        ordered = sorted(records, key=lambda record: (record.data_source, record.task_id, record.sample))
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / f"{step}.jsonl", (_line(record, step) for record in ordered))

    def keep_through(self, step: int) -> None:
        """Drop what was logged after `step`: those steps will be run again."""
        for name in (*STEP_LOGS, "stages"):
            path = self._folder / f"{name}.jsonl"
            if path.exists():
                lines = [line for line in _complete_lines(path) if json.loads(line)["step"] <= step]
                write_text("".join(line + "\n" for line in lines), path)
        for folder in (self._trajectories, self._validation):
            for path in folder.glob("*.jsonl"):
                if path.stem.isdigit() and int(path.stem) > step:
                    path.unlink()


def step_lines(report: StepReport, seconds: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """The line of each step log for one step, by the log's name."""
    lines = (
        {"step": report.step, "profile": report.profile},
        {"step": report.step, "omega": report.omega_next},
        report.line(seconds),
    )
    return dict(zip(STEP_LOGS, lines, strict=True))


def _steps(path: Path) -> set[int]:
    return {json.loads(line)["step"] for line in _complete_lines(path)} if path.exists() else set()


def _line(record: TrajectoryRecord, step: int) -> dict[str, Any]:
    data = asdict(record)
    messages = data.pop("messages")
    start = next((i for i, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    return {"step": step, "input": messages[:start], "output": messages[start:], **data}


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), path)


def _complete_lines(path: Path) -> list[str]:
    """The lines that end in a newline; a run that was killed may have left half of one."""
    text = path.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1].splitlines()
