"""The files of a run's folder, `experiments/<name>/`; docs/logs.md describes them."""

from pathlib import Path

STEP_LOGS = ("profile", "omega", "steps")
"""The logs with one line per training step, in the order of writing: a step that `steps` holds is in all of them."""

START = {
    "checks": "the launcher checks recipe and machine",
    "service": "the launcher waits for the environment service",
    "ray": "the training process waits for Ray's processes",
    "trainer": "the trainer imports verl",
    "model": "the trainer reads the tasks, and the training workers load the policy",
    "engine": "the trainer waits for the rollout engine, the agent-loop workers and the first weight sync",
}
"""The stages of a start in their order, and who waits for what; `ready` ends the last one."""
FIRST, READY = next(iter(START)), "ready"


class RunFolder:
    """A run's folder, which need not exist. Folders of trajectories hold one `<step>.jsonl` per step."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.steps = self.log("steps")
        self.stages = self.log("stages")
        self.start = self.log("start")
        self.progress = self.path / "seal_log" / "progress.json"
        self.launches = self.log("launches")
        self.trajectories = self.path / "seal_log" / "trajectories"
        self.validations = self.path / "validation_log"
        self.withdrawals = self.path / "seal_log" / "withdrawal"
        self.training_rows = self.path / "data" / "train.parquet"
        self.picture = self.path / "report.png"
        self.lock = self.path / "launcher.lock"
        self.stop = self.path / "stop"
        self.ending = self.path / "ending.json"
        self.train_log = self.path / "train.log"
        self.checkpoints = self.path / "checkpoints"

    def log(self, name: str) -> Path:
        """One of STEP_LOGS, `start` and `stages` (what the run does now) or `launches` (what each launch ran)."""
        return self.path / "seal_log" / f"{name}.jsonl"
