"""A reference's run: what the policy says, and the user if a model plays it.

That user says "Go on.", and stops when the reference does. If tasks have their own messages, these are played instead,
unless the parameters ask for a user.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from env_service.answers import Evaluation, Opening, Step
from env_service.environments.base import Call, Environment, EnvironmentEpisode, Guard
from env_service.environments.kit.environment import ToolEnvironment
from env_service.environments.kit.tasks import UserPart

PATIENT = "Go on."


def said(environment: Environment, turns: Sequence[Sequence[Call]], mode: str) -> tuple[str, ...]:
    """The messages of an assistant that makes these calls one by one, and closes each turn."""
    texts = ((*(environment.render(mode, call) for call in calls), environment.closing(mode)) for calls in turns)
    return tuple(text for turn in texts for text in turn)


def opened(environment: Environment, task_id: str, params: Mapping[str, Any], guard: Guard) -> EnvironmentEpisode:
    """An episode in which only the policy speaks."""
    if not params.get("user") and getattr(environment, "own_users", True):
        return environment.open(task_id, params, guard)
    asked = {**params, "user": True}
    episode = environment.open(task_id, asked, guard)
    if "user" not in episode.start():
        return episode
    part = environment.scene(task_id, asked).part if isinstance(environment, ToolEnvironment) else UserPart("")
    return _WithUser(episode, len(environment.reference(task_id)), [*part.stops, PATIENT][0])


class _WithUser:
    """The episode, with the user's messages in its answers. answers: the policy's until the user says `stop`."""

    def __init__(self, episode: Any, answers: int, stop: str) -> None:
        self._episode, self._answers, self._stop = episode, answers, stop
        self._first = episode.hear(PATIENT)["state"]

    def start(self) -> Opening:
        opening = self._episode.start()
        return {**opening, "state": [*opening["state"], *self._first]}

    def step(self, content: str, truncated: bool) -> Step:
        answer = self._episode.step(content, truncated)
        if "user" not in answer:
            return answer
        self._answers -= 1
        return self._episode.hear(PATIENT if self._answers else self._stop)

    def evaluate(self, params: Mapping[str, Any]) -> Evaluation | float:
        return self._episode.evaluate(params)

    def describe(self) -> Any:
        return self._episode.describe()
