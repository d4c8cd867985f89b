"""Whether a run validates on what it trains on."""

from collections.abc import Iterable
from pathlib import Path

from env_service.environments.bfcl.splits import siblings_in_train
from seal.data.parquet import read_rows
from seal.records.folder import RunFolder
from seal.records.trajectory import TrajectoryRecord


def not_held_out(run: Path | str, lines: Iterable[TrajectoryRecord]) -> str | None:
    """A warning if validated tasks, or other variants of them, are in the run's training data.

    None if there are none, or if the run recorded no training data.
    """
    rows = RunFolder(Path(run)).training_rows
    if not rows.is_file():
        return None
    tasks = sorted({line.task_id for line in lines})
    seen = siblings_in_train((row.task_id for row in read_rows(rows)), tasks)
    if not seen:
        return None
    return (
        f"NOT HELD OUT: of {len(tasks)} validated tasks {len(seen)} are trained on, as they are or as another variant "
        "of the same scenario."
    )
