"""What is kept of one trajectory beside its tokens."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

FATAL = frozenset({"environment_refused", "prompt_too_long"})
"""Causes that another attempt cannot mend and that a run must not train on: a wrong setting, or an interface leak."""


@dataclass(frozen=True)
class TrajectoryRecord:
    """One finished rollout as the trainer and the logs see it.

    labels: one dominant label a user turn that took place, Z(tau). spans: (turn,
    start, end) of each assistant message in response tokens. infra names the
    failure of infrastructure that ended it and infra_message tells it; a record
    with one has no labels and its reward means nothing. omega_version is None where
    the episode carried none.
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
    infra: str | None = None
    infra_message: str = ""
    omega_version: int | None = None
    prompt_mode: str = ""
    service_hash: str = ""
    data_hash: str = ""
    messages: tuple[dict[str, str], ...] = field(default=())

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
