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

AGENT_NAME = "seal_agent"


@dataclass(frozen=True)
class TaskRow:
    """One task of one side; turns is the number of user turns kept, WHOLE for all of them.

    category: qualified by the environment (`seal.diagnosis.categories`). scenario: shared by tasks of which
    none may be on the other side.
    """

    task_id: str
    category: str
    scenario: int
    split: Side
    turns: int = WHOLE
    agent: str = AGENT_NAME

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
        task = asdict(self)
        agent = task.pop("agent")
        return {
            "data_source": self.data_source,
            "prompt": [{"role": "user", "content": self.task_id}],
            "agent_name": agent,
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": index, **task},
        }


def whole_rows(task_ids: Iterable[str], split: Side) -> tuple[TaskRow, ...]:
    """One row per task, in the given order."""
    return tuple(TaskRow(task, *parse_task_id(task), split) for task in task_ids)
