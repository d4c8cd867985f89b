"""The lesson of a cued rollout, its messages replayed in a plain episode; and the failures that call for cues."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from seal.records.trajectory import TrajectoryRecord
from seal.rollout.dialogue import Dialogue
from seal.rollout.engine import EngineSpeaker
from seal.rollout.speaker import Said


class Lesson(EngineSpeaker):
    """Says, token by token, what was sampled in another dialogue of the same task; its prompts are this dialogue's."""

    name = "the lesson"

    def __init__(self, told: EngineSpeaker):
        super().__init__(*told.made_of)
        self._told = iter(told.sampled)
        self.versions = told.versions

    async def say(self, dialogue: Dialogue) -> Said | None:
        message = next(self._told, None)
        if message is None or await self._room_after_hearing(dialogue) < len(message.ids):
            return None
        await self._append(dialogue.turn, message)
        return self._said(message.ids, truncated=False)


class Siblings:
    """The plain rollouts of one prompt; their failures decide what its retries see.

    All rollouts of a prompt run in one process (verl's `AgentLoopWorkerTQ`).
    """

    def __init__(self, plain: int, rollouts: int):
        self._waiting, self._inside = plain, rollouts
        self._passed = False
        self._signals: set[str] = set()
        self._ended = asyncio.Event()

    def ended(self, record: TrajectoryRecord | None) -> None:
        """Take in a plain rollout; None for one that broke off."""
        if record is not None and record.usable:
            self._passed = self._passed or record.passed
            self._signals.update(record.signals)
        self._waiting -= 1
        if self._waiting <= 0:
            self._ended.set()

    async def failures(self) -> frozenset[str]:
        """All that fired in their turns, once they have ended, each by its own deadline; none if one passed."""
        await self._ended.wait()
        return frozenset() if self._passed else frozenset(self._signals)


_PROMPTS: dict[str, Siblings] = {}


@contextmanager
def siblings(prompt: str, plain: int, rollouts: int) -> Iterator[Siblings]:
    """Those of a rollout of this prompt (verl's uid), until the last of its rollouts has left."""
    own = _PROMPTS.setdefault(prompt, Siblings(plain, rollouts))
    try:
        yield own
    finally:
        own._inside -= 1
        if not own._inside:
            del _PROMPTS[prompt]
