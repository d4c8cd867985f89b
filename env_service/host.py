"""What a worker process does with a request: it holds episodes and answers for them.

A request is [op, episode, arguments]. The answer is a header and a body that is
already JSON, so that the HTTP process passes the body on without reading it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from env_service.activity import Position
from env_service.encoding import encode
from env_service.environments import base

_MAX_BROKEN_PER_STEP = 3


class CallObserver(Protocol):
    """Learns when guarded calls begin and end, so that another process can time them."""

    def begin(self, position: Position) -> None:
        """A guarded call begins."""

    def end(self) -> None:
        """The guarded call returned."""


class EpisodeGuard(base.Guard):
    """Numbers the guarded calls of an episode and skips those that exceeded a limit before.

    After three broken calls in one step the rest of that step is skipped too, so
    that one message cannot cost a worker per call.
    """

    def __init__(self, observer: CallObserver, broken: Mapping[Position, str]) -> None:
        """broken maps the positions of calls that must not run again to the reason."""
        self._observer = observer
        self._broken = dict(broken)
        self.step = 0
        self._call = 0

    def next_step(self) -> None:
        """Count one step as done."""
        self.step += 1
        self._call = 0

    def run(self, call: Callable[[], Any], refused: Callable[[str], Any]) -> Any:
        """See :class:`env_service.environments.base.Guard`."""
        position = (self.step, self._call)
        self._call += 1
        if position in self._broken:
            return refused(self._broken[position])
        broken = [call for step, call in self._broken if step == self.step]
        if len(broken) >= _MAX_BROKEN_PER_STEP and position[1] > max(broken):
            return refused("earlier calls of this message exceeded the limits")
        self._observer.begin(position)
        result = call()
        # Not in a finally: when the call ends the process, the record must still name it.
        self._observer.end()
        return result


class Host:
    """The episodes of one process."""

    def __init__(self, observer: CallObserver) -> None:
        """observer learns of every guarded call."""
        self._observer = observer
        self._episodes: dict[str, tuple[base.EnvironmentEpisode, EpisodeGuard]] = {}
        self._operations = {
            "create": self._create,
            "start": self._start,
            "rebuild": self._rebuild,
            "step": self._step,
            "evaluate": self._evaluate,
            "describe": self._describe,
            "release": self._release,
            "profile": self._profile,
            "version": self._version,
            "load_task_file": self._load_task_file,
        }

    def handle(self, op: str, episode: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Answer one request: ({"ok": True, ...}, JSON) or ({"ok": False}, the reason as text)."""
        try:
            header, data = self._operations[op](episode, arguments)
        except ValueError as error:
            return {"ok": False}, str(error).encode("utf-8", "replace")
        return {"ok": True, **header}, encode(data)

    def _create(self, episode: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        environment = base.get_environment(arguments["env_type"])
        guard = EpisodeGuard(self._observer, {(step, call): why for step, call, why in arguments.get("broken", ())})
        opened = environment.open(arguments["task_id"], arguments["params"], guard)
        data = _opening(opened, episode)
        self._episodes[episode] = (opened, guard)
        return {}, data

    def _start(self, episode: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        return {}, _opening(self._episodes[episode][0], episode)

    def _rebuild(self, episode: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        self._create(episode, arguments)
        for content, truncated in arguments["steps"]:
            self._advance(episode, content, truncated)
        return {}, None

    def _step(self, episode: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        data = self._advance(episode, arguments["content"], arguments["truncated"])
        return {"done": data["is_terminated"], "error": data["info"].get("error_class")}, data

    def _advance(self, episode: str, content: str, truncated: bool) -> Any:
        opened, guard = self._episodes[episode]
        data = opened.step(content, truncated)
        guard.next_step()
        return data

    def _evaluate(self, episode: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        return {}, self._episodes[episode][0].evaluate(arguments)

    def _describe(self, episode: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        return {}, self._episodes[episode][0].describe()

    def _release(self, episode: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        self._episodes.pop(episode, None)
        return {}, None

    def _profile(self, episode: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        environment = base.get_environment(arguments["env_type"])
        return {}, list(environment.task_ids(arguments["split"]))

    def _load_task_file(self, episode: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        return {}, base.get_environment(base.DEFAULT).load_task_file(arguments["path"])

    def _version(self, episode: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        return {}, base.get_environment(arguments["env_type"]).version()


def _opening(opened: base.EnvironmentEpisode, episode: str) -> base.Json:
    data = opened.start()
    data["info"]["instance_id"] = episode
    return data
