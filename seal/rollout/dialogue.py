"""One trajectory while it is played, in text."""

import time
from dataclasses import dataclass, field
from typing import Any

ENVIRONMENT = "the environment service"


@dataclass
class Dialogue:
    """The messages so far, and what is known about them.

    turns: the user turn of each assistant message; turn: the current one. truncated: the numbers of the messages that a
    length limit cut. info: the service's information on the episode. stop: how it ended (TrajectoryRecord). note: why,
    in a refusing speaker's words. waiting_for: the one that was waited for last. times: when each answered message was
    asked for, said and answered, in seconds since the start. user: what a model said as the user.
    """

    messages: list[dict[str, str]] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    turn: int = 0
    truncated: list[int] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    stop: str = ""
    note: str = ""
    waiting_for: str = ""
    times: list[tuple[float, float, float]] = field(default_factory=list)
    user: list[Any] = field(default_factory=list)
    _started: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        return round(time.monotonic() - self._started, 3)
