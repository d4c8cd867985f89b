"""The worker process: it holds episodes and answers requests for them.

A request is [op, episode, arguments]; the answer is a header and a JSON body, which the HTTP process passes on unread.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from env_service.answers import Opening, Step
from env_service.channel import ActivityPage, Position
from env_service.encoding import encode
from env_service.environments import base
from env_service.environments.registry import get_environment
from env_service.protocol import DEFAULT_ENVIRONMENT, ENVIRONMENT_FAILED, USER_ROLE, first_error

_LOG = logging.getLogger(__name__)
_MAX_BROKEN_PER_STEP = 3
_OPENING, _STEP = TypeAdapter(Opening), TypeAdapter(Step)
_PLAYING = frozenset({"rebuild", "step", "start", "evaluate", "describe"})
"""In these requests, of all exceptions only a Refusal is the caller's fault."""


class EpisodeGuard(base.Guard):
    """Numbers the guarded calls of an episode and skips those that exceeded a limit before.

    After three broken calls in a step, it also skips the rest, so that one message cannot kill one worker per call.
    """

    def __init__(self, activity: ActivityPage, broken: Mapping[Position, str]) -> None:
        """broken maps the positions of calls that must not run again to the reason."""
        self._activity = activity
        self._broken = dict(broken)
        self.step = 0
        self._call = 0

    def next_step(self) -> None:
        self.step += 1
        self._call = 0

    def run(self, call: Callable[[], Any], refused: Callable[[str], Any]) -> Any:
        position = (self.step, self._call)
        self._call += 1
        if position in self._broken:
            return refused(self._broken[position])
        broken = [call for step, call in self._broken if step == self.step]
        if len(broken) >= _MAX_BROKEN_PER_STEP and position[1] > max(broken):
            return refused("earlier calls of this message exceeded the limits")
        self._activity.begin(position)
        result = call()
        # Not in a finally: if the call kills the process, the record must still name it.
        self._activity.end()
        return result


class Host:
    """The episodes of one process."""

    def __init__(self, activity: ActivityPage) -> None:
        self._activity = activity
        self._episodes: dict[str, tuple[base.EnvironmentEpisode, EpisodeGuard, str]] = {}

    def handle(self, op: str, episode: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Answer one request: ({"ok": True}, JSON) or ({"ok": False, "code"?}, the reason as text).

        Any exception of an environment that is not a refusal counts as the environment's failure.
        """
        try:
            data = self._answer(op, episode, arguments)
        except MemoryError:
            raise  # the service sets this limit
        except BaseException as error:  # an environment is third-party code: a tool's argparse raises SystemExit
            if isinstance(error, base.Refusal if op in _PLAYING else ValueError):
                code = {"code": USER_ROLE} if isinstance(error, base.UserFault) else {}
                return {"ok": False, **code}, str(error).encode("utf-8", "replace")
            *_, env_type = self._episodes.get(episode) or (arguments.get("env_type", DEFAULT_ENVIRONMENT),)
            _LOG.exception("the environment %s failed in %s", env_type, op)
            reason = f"The environment {env_type} raised {type(error).__name__} in {op}: {error}"
            return {"ok": False, "code": ENVIRONMENT_FAILED}, reason.encode("utf-8", "replace")
        return {"ok": True}, encode(data)

    def _answer(self, op: str, name: str, arguments: Mapping[str, Any]) -> Any:
        match op:
            case "create":
                return self._create(name, arguments)
            case "rebuild":
                self._create(name, arguments)
                for content, truncated, role in arguments["steps"]:
                    self._step(name, content, truncated, role)
                return None
            case "step":
                return self._step(name, arguments["content"], arguments["truncated"], arguments["role"])
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
                return list(get_environment(arguments["env_type"]).task_ids(arguments["split"]))
            case "version":
                return get_environment(arguments["env_type"]).version()
            case "load_task_file":
                return get_environment(DEFAULT_ENVIRONMENT).load_task_file(arguments["path"])
        raise KeyError(op)

    def _create(self, name: str, arguments: Mapping[str, Any]) -> Opening:
        guard = EpisodeGuard(self._activity, {(step, call): why for step, call, why in arguments.get("broken", ())})
        environment = get_environment(arguments["env_type"])
        episode = environment.open(arguments["task_id"], arguments["params"], guard)
        data = _opening(episode, name)
        self._episodes[name] = (episode, guard, arguments["env_type"])
        return data

    def _step(self, name: str, content: str, truncated: bool, role: str) -> Step:
        episode, guard, _ = self._episodes[name]
        if role == "user":
            if not isinstance(episode, base.HearsUser):
                raise base.Refusal("The episode has no user whose messages a caller says: send the policy's.")
            # The guard counts only the policy's messages.
            return _shaped(_STEP, episode.hear(content))
        data = _shaped(_STEP, episode.step(content, truncated))
        guard.next_step()
        return data


def _opening(episode: base.EnvironmentEpisode, name: str) -> Opening:
    data = _shaped(_OPENING, episode.start())
    data["info"]["instance_id"] = name
    return data


def _shaped(shape: TypeAdapter[Any], data: Any) -> Any:
    """The answer of an environment, unchanged; TypeError if its shape is not the protocol's."""
    try:
        shape.validate_python(data)
    except ValidationError as error:
        raise TypeError(f"the answer's {first_error(error)}") from error
    return data
