"""Rows of the training and evaluation files: one task, or one prefix of a task, per row.

The environment service makes the prompt that the policy sees from the task id,
so the row's own prompt holds only the id.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from env_service.environments.bfcl.splits import Side
from seal.diagnosis.categories import environment_of, parse_task_id
from seal.records.source import WHOLE, data_source


@dataclass(frozen=True)
class TaskRow:
    """One task of one side; turns is the number of user turns kept, WHOLE for all of them.

    category: qualified by the environment (`seal.diagnosis.categories`). scenario: shared by tasks of which
    none may be on the other side. withdrawn: in a withdrawal, what it goes without (TrajectoryRecord).
    """

    task_id: str
    category: str
    scenario: int
    split: Side
    turns: int = WHOLE
    withdrawn: str | None = None

    @property
    def environment(self) -> str:
        """The environment that plays the task."""
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
