"""Refusals: the requests that the service answers with a 4xx status and one sentence."""

from __future__ import annotations

NO_EPISODE = "no_episode"
"""Code of a refusal: no such episode is open; open it again."""
EPISODE_BROKEN = "episode_broken"
"""Code of a refusal: the episode exceeded the service's limits and would do so again."""


class RequestRefused(ValueError):
    """The request cannot be answered; the message says why and how to fix it.

    status: HTTP status of the answer. code: lets a program act on the refusal (one of the constants above).
    """

    def __init__(self, message: str, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
