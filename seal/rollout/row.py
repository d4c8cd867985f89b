"""A row of a batch as verl hands it to the agent loop, with typed values."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from seal.diagnosis.categories import environment_of
from seal.settings.rollout import RolloutSettings

_ROUNDING = 1e-9
"""Keeps a multiple of a share that is a whole number from being rounded below it."""


@dataclass(frozen=True)
class Row:
    """One rollout of one task.

    turns: of a prefix of the task; -1 for the whole. sample: the number of the rollout among its prompt's. step: the
    trainer's step, which drew it. index: of the task in its data set. omega: what the episode shows, None for the plain
    benchmark. withdrawn: which cue a withdrawal leaves out (TrajectoryRecord), None outside withdrawals.
    """

    task_id: str
    category: str
    split: str
    data_source: str
    turns: int
    sample: int
    step: int
    index: str
    training: bool
    omega: Mapping[str, Any] | None
    withdrawn: str | None

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Self:
        """From the columns of the data set and, in training, those that the trainer adds."""
        extra = row["extra_info"]
        return cls(
            task_id=extra["task_id"],
            category=extra["category"],
            split=extra["split"],
            data_source=row["data_source"],
            turns=int(extra.get("turns", -1)),
            sample=int(row["session_id"]),
            step=int(row["global_steps"]),
            index=str(row["index"]),
            training=bool(row.get("training")),
            omega=row.get("omega"),
            withdrawn=row.get("withdrawn"),
        )

    @property
    def environment(self) -> str:
        """The name of the task's environment."""
        return environment_of(self.category)

    @property
    def place(self) -> str:
        """What seeds and draws of this rollout follow from."""
        return f"{self.step}/{self.index}/{self.sample}"

    def sharing(self, share: float) -> Self:
        """The row without Omega unless it is one of its prompt's share; they are spread evenly over its rollouts."""
        return self if sees_omega(self.sample, share) or self.withdrawn is not None else self.plain()

    def plain(self) -> Self:
        """The row without Omega."""
        return replace(self, omega=None)

    def create_params(self, settings: RolloutSettings, prompt_mode: str) -> dict[str, Any]:
        """The parameters of the service's /create."""
        # Validation is judged as officially, also on tasks of the training side.
        params: dict[str, Any] = {"split": self.split if self.training else "eval", "tool_prompt_mode": prompt_mode}
        if self.turns > 0:
            params["turns"] = self.turns
        if self.training:
            params["enforce_available_tools"] = settings.enforce_available_tools
            if self.omega is not None:
                params["omega"] = self.omega
                # The leak guard watches a share of the trajectories, drawn by step, row and sample.
                draw = zlib.crc32(f"guard/{self.place}".encode()) / 2**32
                params["leak_guard"] = draw < settings.leak_guard_share
        return params


def sees_omega(sample: int, share: float) -> bool:
    """Whether a rollout, by its number among its prompt's, belongs to the share of them that see Omega."""
    return whole_part(share, sample + 1) > whole_part(share, sample)


def whole_part(share: float, rollouts: int) -> int:
    """How many of a prompt's first rollouts belong to a share of them, rounded down."""
    return int(rollouts * share + _ROUNDING)
