"""The files of a run's folder, `experiments/<name>/`; docs/logs.md describes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seal.jsonl import step_files

STEP_LOGS = ("profile", "omega", "steps")
"""The logs with one line per training step, in the order of writing: a step that `steps` holds is in all of them."""

CHECKPOINT_PREFIX = "global_step_"


@dataclass(frozen=True)
class RunFolder:
    """A run's folder, which need not exist."""

    path: Path

    @property
    def steps(self) -> Path:
        """One line per training step."""
        return self.log("steps")

    @property
    def stages(self) -> Path:
        """One line per stage that began: what the run is doing now."""
        return self.log("stages")

    def log(self, name: str) -> Path:
        """One of STEP_LOGS, or `stages`."""
        return self.path / "seal_log" / f"{name}.jsonl"

    @property
    def trajectories(self) -> Path:
        """The folder of the training trajectories, one `<step>.jsonl` per step."""
        return self.path / "seal_log" / "trajectories"

    @property
    def validations(self) -> Path:
        """The folder of the validated trajectories, one `<step>.jsonl` per validation."""
        return self.path / "validation_log"

    @property
    def training_rows(self) -> Path:
        """The tasks that the run trains on, as a parquet file."""
        return self.path / "data" / "train.parquet"

    @property
    def picture(self) -> Path:
        """The curves of the report."""
        return self.path / "report.png"

    @property
    def train_log(self) -> Path:
        """The output of the trainer and its workers."""
        return self.path / "train.log"

    @property
    def service_log(self) -> Path:
        """The output of an environment service that was started with the run."""
        return self.path / "service.log"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints, one `global_step_<step>` each."""
        return self.path / "checkpoints"

    @property
    def last_checkpoint(self) -> Path | None:
        """The checkpoint with the highest step."""
        found = {path.name.removeprefix(CHECKPOINT_PREFIX): path for path in self.checkpoints.glob("global_step_*")}
        return max(((int(step), path) for step, path in found.items() if step.isdigit()), default=(0, None))[1]

    @property
    def validated(self) -> bool:
        """Whether there is a validation."""
        return bool(step_files(self.validations))
