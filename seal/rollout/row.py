"""A row of a batch as verl hands it to the agent loop, with typed values."""

import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from seal.diagnosis.categories import environment_of
from seal.interface.cues import Omega
from seal.records.trajectory import EVERY_CUE, NO_CUE, WITHDRAWAL_AGENTS
from seal.teacher import answering, sees_omega

OMEGA = "withdrawal_omega"
"""The key under which rows of a validation carry Omega_t; only those of a withdrawal read it."""

LEAK_GUARD_SHARE = 0.05
"""The share of the training trajectories with an Omega that the leak guard watches."""

Shown = Literal["all", "without_one", "none"]
"""The interface in a row of a withdrawal: Omega, Omega without one of its cues, or none (the plain benchmark).

The difference says what a cue still gives the policy, and whether a skill survives without it.
Each validation plays the tasks of `seal.data.withdrawal` in all three ways.
"""


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
    def read(cls, row: Mapping[str, Any], shown: Shown | None = None) -> Self:
        """From the columns of the data set and, in training, those that the trainer adds."""
        extra = row["extra_info"]
        training, omega, withdrawn = bool(row.get("training")), row.get("omega"), None
        if shown == "none":
            withdrawn = EVERY_CUE
        elif shown is not None:  # played as in training
            training, omega, withdrawn = True, row[OMEGA], ""
        if shown == "without_one":
            cue = withdrawn_cue(Omega.from_json(omega), extra["category"], row)
            omega, withdrawn = Omega.from_json(omega).without(cue, extra["category"]).to_json(), cue or NO_CUE
        return cls(
            task_id=extra["task_id"],
            category=extra["category"],
            split=extra["split"],
            data_source=row["data_source"],
            turns=int(extra.get("turns", -1)),
            sample=int(row["session_id"]),
            step=int(row["global_steps"]),
            index=str(row["index"]),
            training=training,
            omega=omega,
            withdrawn=withdrawn,
        )

    @property
    def environment(self) -> str:
        """The name of the task's environment."""
        return environment_of(self.category)

    @property
    def place(self) -> str:
        """The key from which seeds and draws of this rollout follow."""
        return f"{self.draw}/{self.sample}"

    @property
    def draw(self) -> str:
        """The same for all rollouts of its prompt."""
        return f"{self.step}/{self.index}"

    def sharing(self, share: float) -> Self:
        """The row without Omega unless it is one of its prompt's share; they are spread evenly over its rollouts."""
        shows = sees_omega(self.sample, share) or self.withdrawn is not None
        return self if shows else replace(self, omega=None)

    @property
    def cues(self) -> tuple[str, ...]:
        """The cues of its Omega that hold for the task."""
        return Omega.from_json(self.omega).for_category(self.category) if self.omega is not None else ()

    def answering(self, labels: Collection[str]) -> Self:
        """The row with the cues for these failures; without Omega if there are none."""
        omega = answering(Omega.from_json(self.omega), self.category, labels)
        return replace(self, omega=omega.to_json() if omega.active else None)

    def identity(self) -> dict[str, Any]:
        """The fields of the record that the row decides."""
        names = ("task_id", "data_source", "category", "split", "sample", "withdrawn")
        return {name: getattr(self, name) for name in names} | {"drawn": self.step if self.training else None}

    def create_params(self, prompt_mode: str, always_guarded: bool = False) -> dict[str, Any]:
        """The parameters of the service's /create. always_guarded: the leak guard watches whatever has an Omega."""
        # Validation is judged as officially, also on tasks of the training side.
        params: dict[str, Any] = {"split": self.split if self.training else "eval", "tool_prompt_mode": prompt_mode}
        if self.turns > 0:
            params["turns"] = self.turns
        if self.training:
            params["enforce_available_tools"] = True  # calls of tools that the task does not offer are refused
            if self.omega is not None:
                params["omega"] = self.omega
                # Drawn by step, row and sample.
                draw = zlib.crc32(f"guard/{self.place}".encode()) / 2**32
                params["leak_guard"] = always_guarded or draw < LEAK_GUARD_SHARE
        return params


def withdrawn_cue(omega: Omega, category: str, row: Mapping[str, Any]) -> str:
    """The cue that this row goes without: the cues of its category in turn, shifted by the step; "" without any."""
    cues = omega.for_category(category)
    number = int(row["index"]) // len(WITHDRAWAL_AGENTS)
    return cues[(number + int(row["global_steps"])) % len(cues)] if cues else ""
