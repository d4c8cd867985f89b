"""What is kept of one trajectory beside its tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from seal.labels import CORRECT_ABSTENTION, PASS

MET = frozenset({PASS, CORRECT_ABSTENTION})
"""The labels of turns that met the verifier."""

FATAL = frozenset({"environment_refused", "prompt_too_long", "token_path"})
"""Causes that another attempt cannot mend and that a run must not train on: a wrong setting, an interface leak, or
tokens that are not those that were sampled."""

FINAL = FATAL | {"environment_replay"}
"""Causes after which a trajectory is not started over: a service of other code or data would play another episode."""

CUTS = {
    "message_length": "length",
    "trajectory_length": "length",
    "model_length": "length",
    "actor_length": "length",
    "max_steps": "step_limit",
}
"""How a trajectory stopped when one of our budgets cut it, and what the service is told of it. In order:
seal.rollout.max_message_tokens, data.max_response_length, rollout.max_model_len, the actor's
ppo_max_token_len_per_gpu (in training), seal.rollout.max_steps (in training)."""


@dataclass(frozen=True)
class TrajectoryRecord:
    """One finished rollout as the trainer and the logs see it.

    labels: one dominant label a user turn that took place, Z(tau). spans: (turn,
    start, end) of each assistant message in response tokens. stop: completed, one
    of CUTS, or the service's word for an episode that it ended itself (step_limit,
    parse_error). excluded: it was cut and the recipe leaves such trajectories out.
    drift: tokens that would be others if the dialogue were tokenised from its text,
    None where its template cannot say. rebuilt: how often its episode was opened
    again on a service. infra names the failure of infrastructure that ended it and
    infra_message tells it; a record with one has no labels and its reward means
    nothing. omega_version is None where the episode carried none.
    """

    task_id: str
    data_source: str
    category: str
    split: str
    sample: int
    score: float
    labels: tuple[str, ...] = ()
    diagnosis: tuple[dict[str, Any], ...] = ()
    evidence: tuple[dict[str, Any], ...] = ()
    spans: tuple[tuple[int, int, int], ...] = ()
    turns_passed: int = 0
    turns: int = 0
    progress: float = 0.0
    calls: int = 0
    errors: int = 0
    tokens: int = 0
    seconds: float = 0.0
    stop: str = ""
    excluded: bool = False
    drift: int | None = None
    rebuilt: int = 0
    infra: str | None = None
    infra_message: str = ""
    omega_version: int | None = None
    prompt_mode: str = ""
    data_hash: str = ""
    messages: tuple[dict[str, str], ...] = field(default=())
    step: int | None = None

    @classmethod
    def of(cls, evaluation: Mapping[str, Any] | None, **known: Any) -> TrajectoryRecord:
        """A record with the findings of the service's answer to /evaluate; None if the episode was not evaluated."""
        if evaluation is None:
            return cls(**known)
        names = ("labels", "diagnosis", "evidence", "turns", "progress", "calls", "errors")
        passed = sum(label in MET for label in evaluation["labels"])
        return cls(**known, **{name: evaluation[name] for name in names}, turns_passed=passed)

    def line(self) -> dict[str, Any]:
        """The record as a line of a log: the messages up to the first answer are `input`, the rest `output`."""
        data = asdict(self)
        messages = data.pop("messages")
        start = next((i for i, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
        return {"step": data.pop("step"), "input": messages[:start], "output": messages[start:], **data}

    @property
    def usable(self) -> bool:
        """Whether its reward and labels mean something and are to be learnt from."""
        return self.infra is None and not self.excluded

    def to_json(self) -> str:
        """One JSON text; the inverse of :meth:`from_json`."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> TrajectoryRecord:
        """Rebuild a record from its JSON text."""
        data = json.loads(text)
        for name in ("labels", "diagnosis", "evidence", "messages"):
            data[name] = tuple(data[name])
        data["spans"] = tuple(tuple(span) for span in data["spans"])
        return cls(**data)
