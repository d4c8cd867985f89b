"""Check whether a run validates on its training tasks."""

from collections.abc import Iterable
from pathlib import Path

from seal.diagnosis.categories import BENCHMARK
from seal.records.folder import RunFolder
from seal.records.trajectory import TrajectoryRecord
from shelf.task_rows import read_rows


def not_held_out(run: Path | str, lines: Iterable[TrajectoryRecord]) -> str | None:
    """A warning if validated tasks, or other variants of them, are in the run's training data.

    None if there are none, or if the run recorded no training data. Variants are known of the
    benchmark only; of other environments, tasks are compared by their ids.
    """
    rows = RunFolder(Path(run)).training_rows
    if not rows.is_file():
        return None
    trained = read_rows(rows)
    known = {(row.environment, row.task_id) for row in trained}
    scenarios = {row.scenario for row in trained if row.environment == BENCHMARK}
    validated = {(line.environment, line.task_id): line for line in lines}
    seen = [
        key
        for key, line in validated.items()
        if key in known or (line.environment == BENCHMARK and line.scenario in scenarios)
    ]
    if not seen:
        return None
    return (
        f"NOT HELD OUT: of {len(validated)} validated tasks {len(seen)} are trained on, as they are or as another "
        "variant of the same scenario."
    )
