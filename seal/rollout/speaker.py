"""Who speaks to the environment: a policy in an engine or behind an endpoint, a script, or a stored record."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from seal.records.trajectory import CUTS, TrajectoryRecord
from seal.rollout.dialogue import Dialogue

Policy = Callable[[Sequence[Mapping[str, str]]], str | None]
"""The next assistant message of a dialogue; None ends it."""


class SpeakerFault(RuntimeError):
    """The speaker could not say its next message; cause: a word for the record's `infra`."""

    def __init__(self, cause: str, message: str):
        super().__init__(message)
        self.cause = cause


class Said(NamedTuple):
    """One assistant message; truncated: a length limit cut it."""

    text: str
    truncated: bool = False


class Speaker:
    """What `play` asks for messages.

    name: in messages to the user. limit: the budget (a key of CUTS) that cut the last
    message, or for which there is no further one; "" without one.
    """

    name = "the policy"
    limit = ""

    async def say(self, dialogue: Dialogue) -> Said | None:
        """The next message, None if there is none; raises SpeakerFault."""
        raise NotImplementedError

    async def ended(self, dialogue: Dialogue) -> None:
        """Called after the last message, before the evaluation; SpeakerFault if the dialogue must not be used."""

    def facts(self, dialogue: Dialogue) -> dict[str, Any]:
        """The fields of the record that the speaker knows."""
        return {}


class Script(Speaker):
    """Says the given messages one after the other, or what a function of the dialogue answers."""

    def __init__(self, messages: Iterable[str] | Policy):
        self._policy = messages if callable(messages) else _one_by_one(messages)

    async def say(self, dialogue: Dialogue) -> Said | None:
        text = self._policy(dialogue.messages)
        return None if text is None else Said(text)


class Recorded(Speaker):
    """Says what the policy said in a stored trajectory.

    The new record keeps the fields of the stored one that the environment does not decide.
    """

    name = "the record"

    def __init__(self, record: TrajectoryRecord):
        self._record = record
        self._texts = [str(message["content"]) for message in record.messages if message["role"] == "assistant"]
        self.limit = record.stop if record.stop in CUTS else ""

    async def say(self, dialogue: Dialogue) -> Said | None:
        number = len(dialogue.turns)
        return Said(self._texts[number], number in self._record.truncated) if number < len(self._texts) else None

    def facts(self, dialogue: Dialogue) -> dict[str, Any]:
        kept = {each.name: getattr(self._record, each.name) for each in fields(self._record)}
        spans = zip(dialogue.turns, self._record.spans, strict=False)
        return {name: value for name, value in kept.items() if name not in _DECIDED} | {
            "spans": tuple((turn, start, end) for turn, (_, start, end) in spans)
        }


_DECIDED = frozenset(
    [
        "score",
        "labels",
        "diagnosis",
        "evidence",
        "turns_passed",
        "turns",
        "progress",
        "calls",
        "errors",
        "stop",
        "excluded",
        "infra",
        "infra_message",
        "omega_version",
        "data_hash",
        "messages",
        "truncated",
        "day",
        "rebuilt",
    ]
)
"""The fields of a record that playing it again decides."""


def _one_by_one(messages: Iterable[str]) -> Policy:
    remaining = iter(messages)
    return lambda _: next(remaining, None)
