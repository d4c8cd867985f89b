"""Budgets and deadlines of a rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RolloutSettings:
    """Budgets and deadlines of one trajectory (`seal.rollout` of the recipe).

    max_steps: assistant messages a training trajectory may hold (paper, Table
    4); validation follows the benchmark's own limit. max_message_tokens: of one
    assistant message; a whole trajectory has data.max_response_length, prompt and
    response together rollout.max_model_len. validation_message_tokens: of one message
    in validation; the official runner asks for 4,096, or what the context leaves. deadline_s: of the whole trajectory.
    generation_timeout_s: of one message, from the request to the engine to its
    last token, queueing included. attempts: how often
    a trajectory is started over after a failure of infrastructure. seed: with
    step, row, sample and message it seeds each request. leak_guard_share: of the
    training trajectories with an Omega, the share that the leak guard watches.
    concurrency: trajectories that one agent-loop worker plays at a time; more wait,
    and their deadline with them.
    """

    max_steps: int = 20
    max_message_tokens: int = 1024
    validation_message_tokens: int = 4096
    deadline_s: float = 900.0
    generation_timeout_s: float = 600.0
    attempts: int = 2
    seed: int = 0
    enforce_available_tools: bool = True
    leak_guard_share: float = 0.05
    concurrency: int = 128

    def __post_init__(self):
        for name in ("max_steps", "max_message_tokens", "validation_message_tokens", "attempts", "concurrency"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"seal.rollout.{name} is {value}; it must be a whole number of at least 1.")
        if not 0 <= self.leak_guard_share <= 1:
            raise ValueError(f"seal.rollout.leak_guard_share is {self.leak_guard_share}; it is a share from 0 to 1.")
        for name in ("deadline_s", "generation_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"seal.rollout.{name} is {getattr(self, name)}; it must be positive.")


@dataclass(frozen=True)
class ServiceSettings:
    """How a rollout waits for its environment service (`env_service` of the recipe).

    timeout_s: for one answer. attempts: how often a request is sent before its
    service counts as failed. restart_wait_s: how long an episode waits while no
    service answers.
    """

    timeout_s: float = 30.0
    attempts: int = 4
    restart_wait_s: float = 120.0

    def __post_init__(self):
        if self.attempts < 1:
            raise ValueError(f"env_service.attempts is {self.attempts}; it must be at least 1.")
        if self.timeout_s <= 0:
            raise ValueError(f"env_service.timeout_s is {self.timeout_s}; it must be positive.")
        if self.restart_wait_s < 0:
            raise ValueError(f"env_service.restart_wait_s is {self.restart_wait_s}; it must not be negative.")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ServiceSettings:
        """Build from the recipe's block, which holds other keys too; ValueError for a wrong value."""
        return cls(float(config["timeout_s"]), int(config["attempts"]), float(config["restart_wait_s"]))
