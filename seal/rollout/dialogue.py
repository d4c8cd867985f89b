"""The growing token stream of one trajectory."""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from seal.rollout.token_path import Sampled

ENGINE = "the rollout engine"
ENVIRONMENT = "the environment service"


@dataclass
class Dialogue:
    """One trajectory so far: its tokens, its messages and what is known about it.

    ids: prompt and response. prompt_length: tokens of the first prompt. mask: 1 for
    a sampled token, 0 for context, per response token; logprobs: natural logarithms,
    0 for context, per response token. spans: (turn, start, end) of each sampled
    message in response tokens. weight_versions: the engine's weights per sampled
    message. info: the service's information about the episode. stop: how it ended
    (TrajectoryRecord). evaluation: the service's, None if the trajectory was lost;
    infra and infra_message then say why. drift: see `token_path.drift`. rebuilt: how
    often its episode was opened again. seconds: waited, by ENGINE and ENVIRONMENT;
    waiting_for: the one that was waited for last.
    """

    ids: list[int] = field(default_factory=list)
    prompt_length: int = 0
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    sampled: list[Sampled] = field(default_factory=list)
    weight_versions: list[int] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    stop: str = ""
    evaluation: dict[str, Any] | None = None
    infra: str | None = None
    infra_message: str = ""
    drift: int | None = None
    rebuilt: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    waiting_for: str = ""

    @property
    def response(self) -> list[int]:
        """The tokens after the first prompt."""
        return self.ids[self.prompt_length :]

    @contextmanager
    def waits_for(self, whom: str) -> Iterator[None]:
        """Within the block the trajectory waits for ENGINE or ENVIRONMENT; adds the seconds."""
        self.waiting_for = whom
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[whom] += time.monotonic() - started
