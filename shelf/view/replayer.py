"""Lines of a log, replayed for the viewer: the states after each turn, and what the cues added."""

import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from threading import Lock
from typing import Any

from env_service.client import ServiceClient, ServiceError
from env_service.local_service import local_service
from seal.records.folder import RunFolder
from seal.records.trajectory import TrajectoryRecord
from seal.settings.data import BENCHMARK
from seal.system.paths import HOME
from shelf.replay.player import Again, play_again
from shelf.statistics.launches import read_launches
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

    def replay(self, value: Mapping[str, Any], step: int, run: RunFolder) -> dict[str, Any]:
        """Return the results of a replay; {"why": sentence} if the line cannot be played again.

        run: its launches name the files of synthesised tasks. turns: as in `simulated.states`. plain: for each message
        that is not the policy's, the UTF-16 units that the environment itself sent (cues added the rest), or null if
        the replay does not show it. other_data: whether the benchmark's data differ from the log's.
        """
        try:
            record, _ = read_line(value, step)
            with self._lock:
                client = self._client = self._client or self._start()
            if record.task_id.startswith("synth_"):
                client.add_tasks([task_line(record.task_id, run)])
            turns, data_hash = _turns(client, record) if record.environment == BENCHMARK else ([], record.data_hash)
            other_data = bool(record.data_hash) and record.data_hash != data_hash
            return {"turns": turns, "plain": _plain(client.url, record), "other_data": other_data}
        except (ServiceError, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            return {"why": f"This line cannot be played again: {error}"}

    def close(self) -> None:
        """Stop the service."""
        self._stack.close()

    def _start(self) -> ServiceClient:
        url = self._stack.enter_context(local_service(**SERVICE))
        return self._stack.enter_context(ServiceClient(url, deadline_s=self._deadline_s, attempts=1))


def _turns(client: ServiceClient, record: TrajectoryRecord) -> tuple[list[dict[str, Any]], str]:
    """The states of the turns that took place, and the hash of the data from which they come."""
    evidence = record.evidence[: len(record.labels)] if record.labels else record.evidence
    name, params = uuid.uuid4().hex, {"day": record.day} if record.day else {}
    opening = client.create(record.task_id, name, _prefix(record) | params)
    try:
        return client.evaluate(name, evidence=list(evidence))["states"], opening["info"]["data_hash"]
    finally:
        client.release(name)


def _plain(url: str, record: TrajectoryRecord) -> list[int | None]:
    """The lengths of what the environment sends without cues, found by playing the policy's messages without cues."""
    if record.omega_version is None or not record.prompt_mode:
        return [None] * len(record.messages)
    params = {"split": "train", "tool_prompt_mode": record.prompt_mode, "omega": {"version": 0, "cues": {}}}
    params |= _prefix(record) | {"enforce_available_tools": True} | ({"user": True} if record.user else {})
    # The cues decide whether an unreadable message is answered: of the two ways, the one that explains more counts.
    ways = [Again(record, params | {"parse_errors": way}) for way in ("feedback", "end_turn")]
    lengths = [_lengths(record.messages, again.messages) for again in play_again(ways, url)]
    return max(lengths, key=lambda way: sum(length is not None for length in way))


def _prefix(record: TrajectoryRecord) -> dict[str, int]:
    return {"turns": record.prefix} if record.prefix > 0 else {}


def _lengths(logged: Sequence[Mapping[str, Any]], plain: Sequence[Mapping[str, Any]]) -> list[int | None]:
    sent = dict(zip(_places(plain), (str(message["content"]) for message in plain), strict=True))
    units = {place: len(text.encode("utf-16-le", "surrogatepass")) // 2 for place, text in sent.items()}
    return [
        units[place] if message["role"] != "assistant" and content.startswith(sent.get(place, "\0")) else None
        for place, message in zip(_places(logged), logged, strict=True)
        for content in (str(message["content"]),)
    ]


def _places(messages: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """For each message: how many policy messages came before it, and how many messages since the last of those."""
    places, said, since = [], 0, 0
    for message in messages:
        places.append((said, since))
        said, since = (said + 1, 0) if message["role"] == "assistant" else (said, since + 1)
    return places


def task_line(task_id: str, run: RunFolder) -> dict[str, Any]:
    """The line with this task in one of the task files that its run used; ValueError if no file holds it any more."""
    from env_service.environments.bfcl.task_file import MadeTask  # loads the benchmark

    if not (launches := read_launches(run)):
        raise ValueError(f"{task_id} is synthesised, and the run has no launches.jsonl that names its task file.")
    files = dict.fromkeys(HOME / file for each in launches[::-1] for file in each.settings.data.task_files())
    for path in files:
        for raw in path.read_bytes().splitlines() if path.is_file() else ():
            if task_id.encode() in raw:
                made = MadeTask.model_validate_json(raw)
                if made.id == task_id == made.content_id():
                    return made.model_dump(mode="json")
    if gone := [path for path in files if not path.is_file()]:
        raise ValueError(f"the task file {gone[0]} is gone: put it back to play {task_id} again.")
    named = ", ".join(map(str, files)) or "none"
    raise ValueError(f"{task_id} is in none of the run's task files ({named}): they have changed since.")
