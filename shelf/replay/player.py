"""Stored trajectories, played again on a service from what the policy said."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any

from env_service.client import AsyncServiceClient
from seal.records.trajectory import CUTS, TrajectoryRecord
from seal.rollout.dialogue import Dialogue
from seal.rollout.episode import Episode
from seal.rollout.play import Terms, play
from seal.rollout.services import Services
from seal.rollout.speaker import FAILED, REFUSAL, Said, Speaker
from seal.rollout.user import RecordedUser

BATCH = 32
RESTART_WAIT_S = 10.0
_BROKEN = "Error during execution: "


class Recorded(Speaker):
    """Says what the policy said in a stored trajectory.

    The new record keeps the fields of the stored one that the environment does not decide.
    """

    name = "the record"

    def __init__(self, record: TrajectoryRecord):
        self._record = record
        self._texts = [str(message["content"]) for message in record.messages if message["role"] == "assistant"]
        self.limit = record.stop if record.stop in (*CUTS, REFUSAL, FAILED) else ""

    async def say(self, dialogue: Dialogue) -> Said | None:
        number = len(dialogue.turns)
        return Said(self._texts[number], number in self._record.truncated) if number < len(self._texts) else None

    def facts(self, dialogue: Dialogue) -> dict[str, Any]:
        names = (each.name for each in fields(self._record) if each.name not in _DECIDED)
        spans = zip(dialogue.turns, self._record.spans, strict=False)
        return {name: getattr(self._record, name) for name in names} | {
            "spans": tuple((turn, start, end) for turn, (_, start, end) in spans)
        }


_DECIDED = (
    "score", "labels", "diagnosis", "evidence", "turns_passed", "turns", "progress", "calls", "errors", "stop",
    "excluded", "silent", "infra", "infra_message", "omega_version", "data_hash", "messages", "truncated", "day",
    "rebuilt",
)  # fmt: skip
"""The fields of a record that the replay determines."""


@dataclass(frozen=True)
class Again:
    """A stored trajectory to play again. params: those of /create."""

    record: TrajectoryRecord
    params: Mapping[str, Any]
    terms: Terms = field(default_factory=Terms)


def play_again(plays: Iterable[Again], url: str) -> Iterator[TrajectoryRecord]:
    """The records that stored trajectories give on the service at `url`, in order, several at once.

    What the environment determines is new: messages, evidence, labels, verdict, reward, stop and
    infra, which is set if the environment does not play the record; the rest comes from the stored
    record. The date and the calls that exceeded a limit are those of the first time it was played.
    """
    waiting = iter(plays)
    with asyncio.Runner() as runner:
        services = Services([AsyncServiceClient(url)], RESTART_WAIT_S)
        try:
            while batch := list(islice(waiting, BATCH)):
                yield from runner.run(_all(batch, services))
        finally:
            runner.run(services.close())


async def _all(batch: Sequence[Again], services: Services) -> list[TrajectoryRecord]:
    return await asyncio.gather(*(_play(again, services) for again in batch))


async def _play(again: Again, services: Services) -> TrajectoryRecord:
    record, params = again.record, dict(again.params)
    if record.day:
        params["day"] = record.day
    enforced = bool(params.get("enforce_available_tools"))
    calls = refused_calls(record.evidence, enforced)
    refused = {"refused_calls": calls} if calls else {}
    episode = Episode(services, record.task_id, params, record.environment, **refused)
    return await play(episode, Recorded(record), {}, again.terms, RecordedUser(record.user))


def refused_calls(evidence: Sequence[Mapping[str, Any]], enforced: bool) -> list[tuple[int, int, str]]:
    """The calls that exceeded a limit, in the form for /create. enforced: calls of hidden tools were not run."""
    actions = [action for turn in evidence for action in turn["actions"]]
    return [
        (message, number, str(call["result"]).removeprefix(_BROKEN))
        for message, action in enumerate(actions)
        for number, call in enumerate(call for call in action["calls"] if call["available"] or not enforced)
        if call["error"] == "deadline"
    ]
