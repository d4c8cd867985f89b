"""One session of the server: OpenEnv's `Environment` over an episode of SEAL's service."""

import random
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import EnvironmentMetadata

from env_service import answers
from env_service.client import ServiceClient

from ..models import Message, SealAction, SealObservation, SealState

SPLITS = ("train", "val")
"""The two sides of the service's default split, as the task routes list them; other splits can be named too."""


class SealEnvironment(Environment[SealAction, SealObservation, SealState]):
    """Episodes of one environment of the service, one at a time."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, client: ServiceClient) -> None:
        """Share the client with the other sessions."""
        super().__init__()
        self._client = client
        self._episode: str | None = None
        self._state = SealState()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = "train",
        task_id: str | None = None,
        index: int | None = None,
        params: Mapping[str, Any] | None = None,
        **others: Any,
    ) -> SealObservation:
        """Open the task `task_id`, or the split's task at `index`, or a task of the split that `seed` draws.

        params: `params` of the service's /create. ServiceError: the service is down, or
        has no such split or task. IndexError, ValueError: a bad index or an unknown option.
        """
        if others:
            raise ValueError(f"reset option {min(others)!r} is unknown: use split, task_id, index, seed or params.")
        task_id = task_id or self._drawn(split, seed, index)
        self.close()
        name = uuid.uuid4().hex
        opening = self._client.create(task_id, name, {"split": split, **(params or {})})
        self._episode = name
        self._state = SealState(episode_id=episode_id or name, task_id=task_id, split=split)
        return self._observation(opening["state"], 0.0, False, {})

    def step(self, action: SealAction, timeout_s: float | None = None, **_: Any) -> SealObservation:
        """Send one assistant message; ValueError before a reset and after the end."""
        if self._episode is None or self._state.done:
            raise ValueError("The episode has ended, or none was opened: call reset first.")
        answer = self._client.step(self._episode, action.message, action.truncated)
        self._state.step_count += 1
        self._state.done = answer["is_terminated"]
        return self._observation(answer["state"], answer["reward"], answer["is_terminated"], answer["info"])

    @property
    def state(self) -> SealState:
        """The current state of the episode."""
        return self._state

    def close(self) -> None:
        """Release the episode."""
        episode, self._episode = self._episode, None
        if episode is not None:
            self._client.release(episode)

    def get_metadata(self) -> EnvironmentMetadata:
        """Return the description of this environment for hubs."""
        return EnvironmentMetadata(
            name="seal",
            description=f"Multi-turn tool use with an exact verdict: {self._client.env_type} of SEAL's service.",
            version="0.1.0",
        )

    def list_splits(self) -> list[str]:
        """The names of the splits."""
        return list(SPLITS)

    def num_tasks(self, split: str) -> int:
        """Return the number of tasks in a split."""
        return len(self._client.tasks(split))

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Every task of a split."""
        return self.get_task_range(split)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """One task of a split; IndexError outside its range."""
        return {"id": _choose(self._client.tasks(split), split, index), "index": index}

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """The tasks of a split between two indices."""
        tasks = self._client.tasks(split)
        return [{"id": tasks[index], "index": index} for index in range(len(tasks))[start:stop]]

    def _drawn(self, split: str, seed: int | None, index: int | None) -> str:
        tasks = self._client.tasks(split)
        if index is None:
            index = random.Random(seed).randrange(max(1, len(tasks)))
        return _choose(tasks, split, index)

    def _observation(
        self, messages: Sequence[answers.Message], reward: float, done: bool, info: Mapping[str, Any]
    ) -> SealObservation:
        evaluation = self._client.evaluate(self._episode) if done and self._episode else None
        return SealObservation(
            messages=[Message(role=message["role"], content=message["content"]) for message in messages],
            task_id=self._state.task_id or "",
            turn=info.get("turn", 0),
            stop=info.get("stop"),
            evaluation=evaluation,
            reward=reward,
            done=done,
        )


def _choose(tasks: Sequence[str], split: str, index: int) -> str:
    """The task of a split at an index; IndexError with one sentence outside its range."""
    if not tasks:
        raise IndexError(f"split {split!r} has no tasks.")
    if not 0 <= index < len(tasks):
        raise IndexError(f"index {index} is outside split {split!r}, which has the tasks 0 to {len(tasks) - 1}.")
    return tasks[index]
