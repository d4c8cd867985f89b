"""The files of a run's folder, `experiments/<name>/`; docs/logs.md describes them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seal.system.jsonl import Line, read_jsonl, step_files

STEP_LOGS = ("profile", "omega", "steps")
"""The logs with one line per training step, in the order of writing: a step that `steps` holds is in all of them."""


class RunFolder:
    """A run's folder, which need not exist. Folders of trajectories hold one `<step>.jsonl` per step."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.steps = self.log("steps")
        self.stages = self.log("stages")
        self.launches = self.log("launches")
        self.trajectories = self.path / "seal_log" / "trajectories"
        self.validations = self.path / "validation_log"
        self.withdrawals = self.path / "seal_log" / "withdrawal"
        self.training_rows = self.path / "data" / "train.parquet"
        self.picture = self.path / "report.png"
        self.lock = self.path / "launcher.lock"
        self.train_log = self.path / "train.log"
        self.checkpoints = self.path / "checkpoints"

    def log(self, name: str) -> Path:
        """One of STEP_LOGS, `stages` (what the run does now) or `launches` (what each launch ran)."""
        return self.path / "seal_log" / f"{name}.jsonl"

    @property
    def validated(self) -> bool:
        """Whether there is a validation."""
        return bool(step_files(self.validations))

    @property
    def begun(self) -> tuple[Mapping[str, Any], ...]:
        """The usable lines of `stages`: a `stage` that began, its `step`, `of` how many steps (validate: tasks)."""
        lines = read_jsonl(self.stages) if self.stages.is_file() else ()
        return tuple(line.value for line in lines if isinstance(line, Line))

    @property
    def last_checkpoint(self) -> Path | None:
        """The checkpoint with the highest step."""
        steps = ((path.name.removeprefix("global_step_"), path) for path in self.checkpoints.glob("global_step_*"))
        return max(((int(step), path) for step, path in steps if step.isdigit()), default=(0, None))[1]


def planned_steps(begun: Sequence[Mapping[str, Any]]) -> int | None:
    """How many steps a run is to train, by the stages that began; None before the first step."""
    return next((line.get("of") for line in reversed(begun) if line.get("stage") != "validate"), None)
