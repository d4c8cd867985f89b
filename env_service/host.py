"""What a worker process does with a request: it holds episodes and answers for them.

A request is [op, episode, arguments]. The answer is a header and a body that is
already JSON, so that the HTTP process passes the body on without reading it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from env_service.channel import ActivityPage, Position
from env_service.encoding import encode
from env_service.environments import base

_MAX_BROKEN_PER_STEP = 3


class EpisodeGuard(base.Guard):
    """Numbers the guarded calls of an episode and skips those that exceeded a limit before.

    After three broken calls in one step the rest of that step is skipped too, so
    that one message cannot cost a worker per call.
    """

    def __init__(self, activity: ActivityPage, broken: Mapping[Position, str]) -> None:
        """broken maps the positions of calls that must not run again to the reason."""
        self._activity = activity
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
        self._activity.begin(position)
        result = call()
        # Not in a finally: when the call ends the process, the record must still name it.
        self._activity.end()
        return result


class Host:
    """The episodes of one process."""

    def __init__(self, activity: ActivityPage) -> None:
        """activity records every guarded call."""
        self._activity = activity
        self._episodes: dict[str, tuple[base.EnvironmentEpisode, EpisodeGuard]] = {}

    def handle(self, op: str, episode: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Answer one request: ({"ok": True, ...}, JSON) or ({"ok": False}, the reason as text)."""
        try:
            data = self._answer(op, episode, arguments)
        except ValueError as error:
            return {"ok": False}, str(error).encode("utf-8", "replace")
        header = {"ok": True}
        if op == "step":
            header |= {"done": data["is_terminated"], "error": data["info"].get("error_class")}
        return header, encode(data)

    def _answer(self, op: str, name: str, arguments: Mapping[str, Any]) -> Any:
        match op:
            case "create":
                return self._create(name, arguments)
            case "rebuild":
                self._create(name, arguments)
                for content, truncated in arguments["steps"]:
                    self._step(name, content, truncated)
                return None
            case "step":
                return self._step(name, arguments["content"], arguments["truncated"])
            case "start":
                return _opening(self._episodes[name][0], name)
            case "evaluate":
                return self._episodes[name][0].evaluate(arguments)
            case "describe":
                return self._episodes[name][0].describe()
            case "release":
                self._episodes.pop(name, None)
                return None
            case "profile":
                return list(base.get_environment(arguments["env_type"]).task_ids(arguments["split"]))
            case "version":
                return base.get_environment(arguments["env_type"]).version()
            case "load_task_file":
                return base.get_environment(base.DEFAULT).load_task_file(arguments["path"])
        raise KeyError(op)

    def _create(self, name: str, arguments: Mapping[str, Any]) -> base.Json:
        guard = EpisodeGuard(self._activity, {(step, call): why for step, call, why in arguments.get("broken", ())})
        environment = base.get_environment(arguments["env_type"])
        episode = environment.open(arguments["task_id"], arguments["params"], guard)
        data = _opening(episode, name)
        self._episodes[name] = (episode, guard)
        return data

    def _step(self, name: str, content: str, truncated: bool) -> base.Json:
        episode, guard = self._episodes[name]
        data = episode.step(content, truncated)
        guard.next_step()
        return data


def _opening(episode: base.EnvironmentEpisode, name: str) -> base.Json:
    data = episode.start()
    data["info"]["instance_id"] = name
    return data
