"""The lesson of a cued rollout: its messages replayed in a plain episode."""

from collections.abc import Mapping, Sequence
from typing import Any

from seal.rollout.dialogue import Dialogue
from seal.rollout.speaker import Said
from seal.rollout.stream import TokenSpeaker, TokenStream
from seal.system.grouping import grouped


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

    GRPO can reward a failed call in a success that the policy sampled itself, because the same call costs it
    elsewhere. A lesson was sampled under another prompt, so nothing would offset the reward.
    """
    spans = grouped((turn, (start, end)) for turn, start, end in lesson.spans)
    for turn in evidence:
        for action, (start, end) in zip(turn["actions"], spans.get(turn["turn"], ()), strict=False):
            if action["refusals"] or any(call["error"] or call["reported"] for call in action["calls"]):
                lesson.leave_out(start, end)
