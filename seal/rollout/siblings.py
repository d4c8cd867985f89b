"""The rollouts of one prompt; a retry waits for the plain ones among them."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from seal.method.teacher import Role
from seal.records.trajectory import TrajectoryRecord


def broken_tools(evidence: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The visible tools that a rollout called with arguments that break their schema; evidence: by turn."""
    calls = (call for turn in evidence for action in turn["actions"] for call in action["calls"])
    return frozenset(
        call["name"] for call in calls if call["available"] and (call["violations"] or call["error"] == "signature")
    )


class Siblings:
    """The plain rollouts of one prompt; their broken calls decide what its retries see.

    All rollouts of a prompt run in one process (verl's `AgentLoopWorkerTQ`).
    """

    def __init__(self, plain: int, rollouts: int):
        self._waiting, self._inside = plain, rollouts
        self._passed = False
        self._broken: set[str] = set()
        self._ended = asyncio.Event()

    def hear(self, record: TrajectoryRecord) -> None:
        """Take in a plain rollout."""
        if record.usable:
            self._passed = self._passed or record.passed
            self._broken |= broken_tools(record.evidence)

    def leave(self, role: Role) -> bool:
        """Count a rollout that has ended, perhaps by an error; return whether it was the last of its prompt."""
        self._inside -= 1
        self._waiting -= role == "plain"
        if self._waiting <= 0:
            self._ended.set()
        return not self._inside

    async def broken(self) -> frozenset[str] | None:
        """Wait for all plain rollouts, each of which has a deadline; the tools of broken calls, None if one passed."""
        await self._ended.wait()
        return None if self._passed else frozenset(self._broken)


_PROMPTS: dict[str, Siblings] = {}


@contextmanager
def siblings(prompt: str, role: Role, plain: int, rollouts: int) -> Iterator[Siblings]:
    """The plain rollouts of a prompt (verl's uid), shared by all its rollouts until the last of them has left."""
    own = _PROMPTS.setdefault(prompt, Siblings(plain, rollouts))
    try:
        yield own
    finally:
        if own.leave(role):
            del _PROMPTS[prompt]
