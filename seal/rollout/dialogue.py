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
    waiting_for: the one that was waited for last. truncated: the numbers of the
    messages that a token limit cut. length: of prompt and response in tokens, when it
    was last compared with the budgets. began: when it started, in seconds since the
    epoch; times: of each answered message, when it was asked for, sampled and
    answered, in seconds since then. tokens_in: of the prompts of all requests.
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
    tokens_in: int = 0
    truncated: list[int] = field(default_factory=list)
    length: int = 0
    began: float = field(default_factory=time.time)
    times: list[tuple[float, float, float]] = field(default_factory=list)
    _started: float = field(default_factory=time.monotonic)
    _message: list[float] = field(default_factory=list)

    @property
    def response(self) -> list[int]:
        """The tokens after the first prompt."""
        return self.ids[self.prompt_length :]

    def asked(self) -> None:
        """Note that the next message is asked for."""
        self._message = [self._since()]

    def received(self) -> None:
        """Note that the message that was asked for has been sampled."""
        self._message.append(self._since())

    def answered(self) -> None:
        """Note that the environment has answered the message."""
        asked, sampled = self._message
        self.times.append((asked, sampled, self._since()))

    def _since(self) -> float:
        return round(time.monotonic() - self._started, 3)

    @contextmanager
    def waits_for(self, whom: str) -> Iterator[None]:
        """Within the block the trajectory waits for ENGINE or ENVIRONMENT; adds the seconds."""
        self.waiting_for = whom
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[whom] += time.monotonic() - started
