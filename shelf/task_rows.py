"""Reads files of task rows that a run wrote (`seal.data.rows`)."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from seal.data.rows import TASK, TaskRow


def read_rows(path: Path | str) -> tuple[TaskRow, ...]:
    """Read rows back; ValueError that names the file and what is missing in it."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} does not exist: make it with seal data prepare.")
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is not a readable parquet file ({error}): make it again.") from error
    rows = []
    for number, row in enumerate(table.to_pylist()):
        extra = row.get("extra_info") or {}
        if missing := TASK.keys() - extra.keys():
            raise ValueError(f"{path}, row {number}: extra_info lacks {', '.join(sorted(missing))}: make it again.")
        rows.append(TaskRow(**{name: extra[name] for name in TASK}))
    return tuple(rows)
