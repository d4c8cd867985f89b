"""The lesson of a cued rollout, its messages replayed in a plain episode; and what retries wait for."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from seal.records.trajectory import TrajectoryRecord
from seal.rollout.dialogue import Dialogue
from seal.rollout.speaker import Said
from seal.rollout.stream import TokenSpeaker, TokenStream


class Lesson(TokenSpeaker):
    """Says, token by token, what was sampled in another dialogue of the same task; its prompts are this dialogue's."""

    name = "the lesson"

    def __init__(self, told: TokenStream):
        self._told = iter(told.sampled)
        self.stream = told.empty()
        self.stream.versions = told.versions

    async def say(self, dialogue: Dialogue) -> Said | None:
        message = next(self._told, None)
        if message is None or await self.stream.hear(dialogue) < len(message.ids):
            self.limit = self.stream.limit
            return None
        await self.stream.append(dialogue.turn, message)
        return Said(await self.stream.text(message.ids, cut=False))

    def facts(self, dialogue: Dialogue) -> dict[str, Any]:
        return self.stream.facts()


def leave_out_failures(lesson: TokenStream, evidence: Sequence[Mapping[str, Any]]) -> None:
    """Mask the messages whose calls failed; evidence: of the replay, by turn.

    GRPO may reward a failed call of a success that the policy sampled itself, because the same call costs it
    elsewhere. A lesson was sampled under another prompt, so nothing takes back what it imitates.
    """
    spans: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for turn, start, end in lesson.spans:
        spans[turn].append((start, end))
    for turn in evidence:
        for action, (start, end) in zip(turn["actions"], spans[turn["turn"]], strict=False):
            if action["refusals"] or any(call["error"] or call["reported"] for call in action["calls"]):
                lesson.leave_out(start, end)


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

    def ended(self, record: TrajectoryRecord | None) -> None:
        """Take in a plain rollout; None for one that broke off."""
        if record is not None and record.usable:
            self._passed = self._passed or record.passed
            self._broken |= broken_tools(record.evidence)
        self._waiting -= 1
        if self._waiting <= 0:
            self._ended.set()

    async def broken(self) -> frozenset[str] | None:
        """Wait for all plain rollouts, each of which has a deadline; the tools of broken calls, None if one passed."""
        await self._ended.wait()
        return None if self._passed else frozenset(self._broken)


_PROMPTS: dict[str, Siblings] = {}


@contextmanager
def siblings(prompt: str, plain: int, rollouts: int) -> Iterator[Siblings]:
    """The plain rollouts of a prompt (verl's uid), shared by all its rollouts until the last of them has left."""
    own = _PROMPTS.setdefault(prompt, Siblings(plain, rollouts))
    try:
        yield own
    finally:
        own._inside -= 1
        if not own._inside:
            del _PROMPTS[prompt]
