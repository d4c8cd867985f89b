"""The files that a run writes for people and for the report; docs/logs.md describes them."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seal.records.folder import READY, STEP_LOGS, RunFolder
from seal.records.format import FORMAT
from seal.records.step import StepReport
from seal.records.trajectory import TrajectoryRecord
from seal.system.files import write_jsonl, write_text
from seal.system.jsonl import step_files


class RunLog:
    """Appends to the run's folder; after a resume it continues from the checkpoint."""

    def __init__(self, run_dir: Path):
        self._folder = RunFolder(run_dir)
        self._folder.trajectories.mkdir(parents=True, exist_ok=True)
        self._ready = False

    def start(self, stage: str, at: float | None = None) -> None:
        """Log that a stage of the start (START) begins, now or at a time in seconds since 1970."""
        _append(self._folder.start, {"time": at or time.time(), "stage": stage})

    def stage(self, name: str, *, step: int, of: int) -> None:
        """Log that a stage begins; of: tasks for `validate`, steps for any other. The first one ends the start."""
        if not self._ready:
            self.start(READY)
            self._ready = True
        _append(self._folder.stages, {"time": time.time(), "stage": name, "step": step, "of": of})

    def launch(self, facts: Mapping[str, Any], *, step: int) -> None:
        """Log what a launch runs, which continues after `step`."""
        _append(self._folder.launches, {"format": FORMAT, "step": step, "time": time.time(), **facts})

    def step(self, report: StepReport) -> None:
        """Write a finished training step: its figures, C_t and Omega_{t+1}."""
        for name, line in report.lines().items():
            _append(self._folder.log(name), line)

    def complete(self, lines: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the lines of a checkpoint's step that the run had not written when it ended."""
        for name, line in lines.items():
            path = self._folder.log(name)
            logged = _complete_lines(path) if path.exists() else []
            if line["step"] not in {json.loads(each)["step"] for each in logged}:
                _append(path, line)

    def trajectories(self, step: int, records: Sequence[TrajectoryRecord]) -> None:
        """Write the training trajectories of a step in one move."""
        _write(self._folder.trajectories, step, records)

    def validation(self, step: int, records: Sequence[TrajectoryRecord]) -> None:
        """Write a validation in the order of tasks and samples; its withdrawal, if it has one, into another file."""
        ordered = sorted(records, key=lambda each: (each.data_source, each.task_id, each.withdrawal or "", each.sample))
        _write(self._folder.validations, step, [record for record in ordered if record.withdrawal is None])
        if withdrawal := [record for record in ordered if record.withdrawal is not None]:
            _write(self._folder.withdrawals, step, withdrawal)

    def keep_through(self, step: int) -> None:
        """Drop what was logged after `step`: those steps will be run again."""
        for name in (*STEP_LOGS, "stages", "launches", "start"):
            path = self._folder.log(name)
            if path.exists():
                lines = [line for line in _complete_lines(path) if json.loads(line).get("step", 0) <= step]
                write_text("".join(line + "\n" for line in lines), path)
        for folder in (self._folder.trajectories, self._folder.validations, self._folder.withdrawals):
            for later, path in step_files(folder):
                if later > step:
                    path.unlink()


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _write(folder: Path, step: int, records: Sequence[TrajectoryRecord]) -> None:
    write_jsonl((replace(record, step=step).line() for record in records), folder / f"{step}.jsonl")


def _complete_lines(path: Path) -> list[str]:
    """The lines that end in a newline; a run that was killed may have left half of one."""
    return path.read_text(encoding="utf-8").split("\n")[:-1]  # not splitlines, which splits at other characters too
