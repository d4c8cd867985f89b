"""A logged trajectory played again on a service of the viewer's: its states, and what the cues had added."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from env_service.client import ServiceClient, ServiceError
from env_service.local_service import local_service
from seal.records.trajectory import TrajectoryRecord
from shelf.statistics.log import read_line

SERVICE = {"BFCL_WORKERS": "1", "BFCL_ENVIRONMENTS": "bfcl=shelf.view.simulated:SimulatedBenchmark"}
DEADLINE_S = 60.0


class Replayer:
    """Replays lines on a service that starts with the first one."""

    def __init__(self, deadline_s: float = DEADLINE_S):
        self._deadline_s = deadline_s
        self._lock = Lock()
        self._stack = ExitStack()
        self._client: ServiceClient | None = None

    def replay(self, value: Mapping[str, Any], step: int, launches: Path | None = None) -> dict[str, Any]:
        """Return the results of a replay; {"why": sentence} if the line cannot be played again.

        launches: the log of the run's launches, which names the files of synthesised tasks.

        turns: as `simulated.states`. plain: for each message that is not the policy's, the number
        of characters that the environment itself sent (what follows was added by cues), or null if
        the replay cannot tell. other_data: whether the benchmark's data are others than the log's.
        """
        try:
            record, _ = read_line(value, step)
            with self._lock:
                client = self._client = self._client or self._started()
            if record.task_id.startswith("synth_"):
                from shelf.view.tasks import task_line  # loads the benchmark

                client.add_tasks([task_line(record.task_id, launches)])
            turns, data_hash = _turns(client, record)
            other_data = bool(record.data_hash) and record.data_hash != data_hash
            return {"turns": turns, "plain": _plain(client.url, record), "other_data": other_data}
        except (ServiceError, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            return {"why": f"This line cannot be played again: {error}"}

    def close(self) -> None:
        """End the service."""
        self._stack.close()

    def _started(self) -> ServiceClient:
        url = self._stack.enter_context(local_service(**SERVICE))
        return self._stack.enter_context(ServiceClient(url, deadline_s=self._deadline_s, attempts=1))


def _turns(client: ServiceClient, record: TrajectoryRecord) -> tuple[list[dict[str, Any]], str]:
    """The states of the turns that took place, and the hash of the data that they are of."""
    evidence = record.evidence[: len(record.labels)] if record.labels else record.evidence
    name, params = uuid.uuid4().hex, {"day": record.day} if record.day else {}
    opening = client.create(record.task_id, name, _prefix(record) | params)
    try:
        return client.evaluate(name, evidence=list(evidence))["states"], opening["info"]["data_hash"]
    finally:
        client.release(name)


def _plain(url: str, record: TrajectoryRecord) -> list[int | None]:
    """Lengths of what the environment sends without cues, by playing the policy's messages without any."""
    if record.omega_version is None or not record.prompt_mode:
        return [None] * len(record.messages)
    from shelf.view.again import Again, played_again

    if not record.truncated and any(action["truncated"] for turn in record.evidence for action in turn["actions"]):
        last = sum(message["role"] == "assistant" for message in record.messages) - 1
        record = replace(record, truncated=(last,))  # a line of an earlier version
    params = {"split": "train", "tool_prompt_mode": record.prompt_mode, "omega": {"version": 0, "cues": {}}}
    params |= _prefix(record) | {"enforce_available_tools": True}
    # Whether an unreadable message was answered depends on the cues: the way that explains more of the log is its own.
    ways = [Again(record, params | {"parse_errors": way}) for way in ("feedback", "end_turn")]
    lengths = [_lengths(record.messages, again.messages) for again in played_again(ways, url)]
    return max(lengths, key=lambda way: sum(length is not None for length in way))


def _prefix(record: TrajectoryRecord) -> dict[str, int]:
    return {"turns": record.prefix} if record.prefix > 0 else {}


def _lengths(logged: Sequence[Mapping[str, Any]], plain: Sequence[Mapping[str, Any]]) -> list[int | None]:
    sent = dict(zip(_places(plain), (str(message["content"]) for message in plain), strict=True))
    return [
        len(sent[place]) if message["role"] != "assistant" and content.startswith(sent.get(place, "\0")) else None
        for place, message in zip(_places(logged), logged, strict=True)
        for content in (str(message["content"]),)
    ]


def _places(messages: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Of each message: how many of the policy's came before it, and how many since the last of them."""
    places, said, since = [], 0, 0
    for message in messages:
        places.append((said, since))
        said, since = (said + 1, 0) if message["role"] == "assistant" else (said, since + 1)
    return places
