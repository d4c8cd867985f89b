"""The history of an episode: everything needed to rebuild it in another process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class EpisodeHistory:
    """How an episode was opened, its messages, and what happened to it.

    steps: (content, truncated) of each message. broken: (step, call, reason) of calls
    that must not run again. generation: the process of its worker that holds it, -1
    for none. lost: why it cannot continue, empty while it can. suspect: the position
    at which its worker died once.
    """

    id: str
    env_type: str
    task_id: str
    params: Mapping[str, Any]
    steps: list[tuple[str, bool]] = field(default_factory=list)
    broken: list[tuple[int, int, str]] = field(default_factory=list)
    generation: int = -1
    lost: str = ""
    suspect: tuple[int, int] | None = None

    def opening(self) -> dict[str, Any]:
        """The arguments that open it."""
        return {"env_type": self.env_type, "task_id": self.task_id, "params": self.params, "broken": self.broken}
