"""Parquet files of task rows, in verl's format; the same rows give the same bytes."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from seal.data.rows import TaskRow
from seal.system.files import replacing

TEXT, NUMBER = pa.string(), pa.int64()
TASK = {"task_id": TEXT, "category": TEXT, "scenario": NUMBER, "split": TEXT, "turns": NUMBER}
SCHEMA = pa.schema(
    {
        "data_source": TEXT,
        "prompt": pa.list_(pa.struct({"role": TEXT, "content": TEXT})),
        "reward_model": pa.struct({"style": TEXT, "ground_truth": TEXT}),
        "extra_info": pa.struct({"index": NUMBER, **TASK, "withdrawn": TEXT}),
    }
)


def write_rows(rows: Iterable[TaskRow], path: Path | str, first: int = 0) -> int:
    """Write rows as parquet (folders are made), numbered from `first`; the number of rows.

    The bytes depend only on the rows and the installed pyarrow: no time, no
    pandas metadata.
    """
    table = [row.to_verl(index) for index, row in enumerate(rows, first)]
    with replacing(path) as draft:
        pq.write_table(pa.Table.from_pylist(table, schema=SCHEMA), draft, compression="snappy", version="2.6")
    return len(table)


def read_rows(path: Path | str) -> tuple[TaskRow, ...]:
    """Read rows back; ValueError that names the file and what is missing in it."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} does not exist: make it with seal data prepare.")
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is not a readable parquet file ({error}): make it again.") from error
    if "extra_info" not in table.column_names:
        raise ValueError(
            f"{path} has no column extra_info (it has {', '.join(table.column_names)}): make it with seal data prepare."
        )
    rows = []
    for number, extra in enumerate(table.column("extra_info").to_pylist()):
        missing = TASK.keys() - set(extra or {})
        if missing:
            raise ValueError(f"{path}, row {number}: extra_info lacks {', '.join(sorted(missing))}: make it again.")
        rows.append(TaskRow(**{name: extra[name] for name in TASK}))
    return tuple(rows)


def withdrawal_file(validation: Path | str) -> Path:
    """The file of a run's withdrawal rows, beside that of its validation rows."""
    return Path(validation).with_name("withdrawal.parquet")
