"""Rows of the training and evaluation files: one task, or one prefix of a task, per row.

The environment service makes the prompt that the policy sees from the task id,
so the row's own prompt holds only the id.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any
from zlib import crc32

from env_service.environments.bfcl.splits import Side
from env_service.environments.registry import get_environment
from seal.diagnosis.categories import environment_of, parse_task_id, qualified
from seal.records.source import WHOLE, data_source
from seal.records.trajectory import WITHDRAWAL_AGENTS

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


def withdrawal_rows(rows: Iterable[TaskRow]) -> tuple[TaskRow, ...]:
    """Each row once for every agent loop of a withdrawal."""
    return tuple(replace(row, agent=agent) for row in rows for agent in WITHDRAWAL_AGENTS)


def environment_rows(name: str, split: Side, subset: str | None = None) -> tuple[TaskRow, ...]:
    """One row per task of an environment's side, or of one of its splits or categories.

    ValueError for an unknown environment or subset.
    """
    environment = get_environment(name)
    facts = map(environment.task, environment.task_ids(subset or split))
    return tuple(TaskRow(task.id, qualified(name, task.category), crc32(task.group.encode()), split) for task in facts)
