"""The files of a run's folder, `experiments/<name>/`; docs/logs.md describes them."""

from pathlib import Path

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
        self.stop = self.path / "stop"
        self.train_log = self.path / "train.log"
        self.checkpoints = self.path / "checkpoints"

    def log(self, name: str) -> Path:
        """One of STEP_LOGS, `stages` (what the run does now) or `launches` (what each launch ran)."""
        return self.path / "seal_log" / f"{name}.jsonl"
