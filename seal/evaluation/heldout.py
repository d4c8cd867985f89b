"""Whether a run validates on what it trains on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from env_service.environments.bfcl.splits import siblings_in_train
from seal.data.parquet import read_rows
from seal.records.validation import ValidationLine

TRAIN_ROWS = Path("data") / "train.parquet"


def not_held_out(run: Path | str, lines: Iterable[ValidationLine]) -> str | None:
    """A warning when validated tasks, or other variants of them, are in the run's training data.

    None when there are none, or when the run recorded no training data.
    """
    rows = Path(run) / TRAIN_ROWS
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
