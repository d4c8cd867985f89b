"""A row of a batch as verl hands it to the agent loop, with typed values."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from seal.method.diagnosis.categories import environment_of
from seal.method.interface.cues import Omega
from seal.settings import EnvServiceSettings

LEAK_GUARD_SHARE = 0.05
"""The share of the training trajectories with an Omega that the leak guard watches."""


@dataclass(frozen=True)
class Row:
    """One rollout of one task.

    turns: the length of a prefix of the task; -1 for the whole. sample: the number of the rollout among those of its
    prompt. step: the trainer's step, which drew it. index: the place of the task in its data set. guided: played as in
    training, like the shown side of a withdrawal. omega: what the episode shows, None for the plain benchmark.
    cluster, withdrawal: see TrajectoryRecord. prompt_mode: the prompt and parser format.
    """

    task_id: str
    category: str
    split: str
    data_source: str
    cluster: int | None
    turns: int
    sample: int
    step: int
    index: str
    guided: bool
    omega: Omega | None
    withdrawal: str | None
    prompt_mode: str

    @classmethod
    def read(cls, row: Mapping[str, Any], service: EnvServiceSettings) -> Self:
        """From the columns of the data set and those that the trainer adds."""
        task = row["extra_info"]
        guided = bool(row.get("training")) or task.get("withdrawal") == "shown"
        omega = row.get("omega") if guided else None
        return cls(
            **{name: task[name] for name in ("task_id", "category", "split")},
            data_source=row["data_source"],
            cluster=task.get("scenario"),
            turns=int(task.get("turns", -1)),
            sample=int(row["session_id"]),
            step=int(row.get("drawn", row["global_steps"])),
            index=str(row["index"]),
            guided=guided,
            omega=None if omega is None else Omega.from_json(omega),
            withdrawal=task.get("withdrawal"),
            prompt_mode=service.mode(environment_of(task["category"])),
        )

    @property
    def trains(self) -> bool:
        """Whether its tokens are trained and training's budgets apply; a withdrawal is only measured."""
        return self.guided and self.withdrawal is None

    @property
    def environment(self) -> str:
        return environment_of(self.category)

    @property
    def place(self) -> str:
        """The key from which seeds and draws of this rollout follow."""
        return f"{self.step}/{self.index}/{self.sample}"

    @property
    def cues(self) -> tuple[str, ...]:
        """The cues of its Omega that hold for the task."""
        return self.omega.for_category(self.category) if self.omega is not None else ()

    def identity(self) -> dict[str, Any]:
        """The fields of the record that the row decides."""
        names = ("task_id", "data_source", "category", "split", "sample", "cluster", "withdrawal", "prompt_mode")
        return {name: getattr(self, name) for name in names} | {"drawn": self.step if self.guided else None}

    def create_params(self, always_guarded: bool = False) -> dict[str, Any]:
        """The parameters of the service's /create. always_guarded: the leak guard watches each one with an Omega."""
        # Validation is judged by the official rules, also on tasks of the training side.
        params: dict[str, Any] = {"split": self.split if self.guided else "eval", "tool_prompt_mode": self.prompt_mode}
        if self.turns > 0:
            params["turns"] = self.turns
        if self.guided:
            params["enforce_available_tools"] = True  # calls of tools that the task does not offer are refused
            if self.omega is not None:
                params["omega"] = self.omega.to_json()
                draw = zlib.crc32(f"guard/{self.place}".encode()) / 2**32
                params["leak_guard"] = always_guarded or draw < LEAK_GUARD_SHARE
        return params
