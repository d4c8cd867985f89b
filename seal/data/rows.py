"""Rows of the training and evaluation files, in verl's format: one task, or one prefix of a task, per row.

The environment service makes the prompt that the policy sees from the task id,
so the row's own prompt holds only the id.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from env_service.environments.bfcl.splits import Side
from seal.method.diagnosis.categories import environment_of
from seal.records.benchmark import parse_task_id
from seal.records.source import WHOLE, data_source
from seal.system.files import replacing

TEXT, NUMBER = pa.string(), pa.int64()
TASK = {"task_id": TEXT, "category": TEXT, "scenario": NUMBER, "split": TEXT, "turns": NUMBER}
SCHEMA = pa.schema(
    {
        "data_source": TEXT,
        "prompt": pa.list_(pa.struct({"role": TEXT, "content": TEXT})),
        "reward_model": pa.struct({"style": TEXT, "ground_truth": TEXT}),
        "extra_info": pa.struct({"index": NUMBER, **TASK, "withdrawal": TEXT}),
    }
)
_PRECISION = 10**6


@dataclass(frozen=True)
class TaskRow:
    """One task of one side; turns is the number of user turns kept, WHOLE for all of them.

    category: qualified by the environment (`seal.method.diagnosis.categories`). scenario: tasks that share it must
    be on the same side. withdrawal: see TrajectoryRecord.
    """

    task_id: str
    category: str
    scenario: int
    split: Side
    turns: int = WHOLE
    withdrawal: str | None = None

    @property
    def environment(self) -> str:
        return environment_of(self.category)

    @property
    def data_source(self) -> str:
        """The category, with ``@k`` for a prefix of k turns: verl averages its metrics by it."""
        return data_source(self.category, self.turns)

    def to_verl(self, index: int) -> dict[str, Any]:
        """The row as verl's dataset reads it; index must be unique in its file."""
        return {
            "data_source": self.data_source,
            "prompt": [{"role": "user", "content": self.task_id}],
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": index, **asdict(self)},
        }


def whole_rows(task_ids: Iterable[str], split: Side) -> tuple[TaskRow, ...]:
    """One row per task, in the given order."""
    return tuple(TaskRow(task, *parse_task_id(task), split) for task in task_ids)


def mix(sources: Sequence[tuple[float, Sequence[TaskRow]]]) -> tuple[TaskRow, ...]:
    """As many rows as the weights allow without repeating one, in the proportions of the weights.

    sources: weight and rows of each. The rows of a source are chosen evenly over it and
    keep their order. ValueError if a source would give no row.
    """
    total = sum(Fraction(weight) for weight, _ in sources)
    shares = [(Fraction(weight) / total).limit_denominator(_PRECISION) for weight, _ in sources]
    size = min(Fraction(len(rows)) / share for share, (_, rows) in zip(shares, sources, strict=True) if share)
    placed: list[tuple[Fraction, int, TaskRow]] = []
    for number, (share, (weight, rows)) in enumerate(zip(shares, sources, strict=True)):
        count = int(size * share)
        if count == 0:
            raise ValueError(f"weight {weight:g} leaves no task of source {number + 1}: raise it, or add tasks.")
        placed += [
            (Fraction(2 * position + 1, 2 * count), number, rows[position * len(rows) // count])
            for position in range(count)
        ]
    return tuple(row for _, _, row in sorted(placed, key=lambda each: each[:2]))


def write_rows(rows: Iterable[TaskRow], path: Path | str, first: int = 0) -> None:
    """Write rows as parquet, numbered from `first`. The bytes depend only on rows and pyarrow."""
    table = [row.to_verl(index) for index, row in enumerate(rows, first)]
    with replacing(path) as draft:
        pq.write_table(pa.Table.from_pylist(table, schema=SCHEMA), draft, compression="snappy", version="2.6")


def withdrawal_file(validation: Path | str) -> Path:
    """The file of a run's withdrawal rows, beside that of its validation rows."""
    return Path(validation).with_name("withdrawal.parquet")
