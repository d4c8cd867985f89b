"""One episode of a task that outlives the service it is played on.

An episode is deterministic, so its opening parameters and the messages that it
was sent are all there is to it. When its service has lost it (restarted, dead,
sick), it is opened again, there or on another service, and the recorded
messages are sent again; every answer must have the hash of the first one. What
was sampled and counted before is neither sampled nor counted again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from seal.rollout.env_client import SICK, EnvironmentClient, EnvironmentFault, Observation
from seal.rollout.services import Services

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Place = tuple[EnvironmentClient, str]
"""A service, and the instance id of an episode on it."""

MAX_REBUILDS = 3
"""Of one episode: more would say that the episode itself ends its services."""
RELEASE_S = 10.0


@dataclass(frozen=True)
class Action:
    """An assistant message that was sent, and the hash of what answered it."""

    step_id: str
    content: str
    truncated: bool
    observed: str


class Episode:
    """The verbs of one episode, each through restarts of its service; EnvironmentFault when that does not help.

    key names the episode: it chooses the service, and each opening's instance id begins with it.
    """

    def __init__(self, services: Services, task_id: str, key: str, params: Mapping[str, Any]):
        self._services = services
        self._task_id = task_id
        self._key = key
        self._params = params
        self._start: tuple[list[dict[str, str]], dict[str, Any]] | None = None
        self._actions: list[Action] = []
        self._openings: list[Place] = []
        self._at: Place | None = None

    @property
    def rebuilt(self) -> int:
        """How often it was opened again."""
        return max(0, len(self._openings) - 1)

    async def create(self) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Open it; its first messages and the service's information about it."""
        await self._through(_nothing_more)
        return self._start

    async def step(self, step_id: str, content: str, truncated: bool) -> Observation:
        """Send one assistant message, and record it for a rebuild."""
        observation = await self._through(
            lambda client, instance_id: client.step(instance_id, step_id, content, truncated)
        )
        self._actions.append(Action(step_id, content, truncated, _hash(observation)))
        return observation

    async def evaluate(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The verdict, labels and evidence; changes nothing."""
        return await self._through(lambda client, instance_id: client.evaluate(instance_id, params))

    async def release(self) -> None:
        """Close it wherever it was opened, within a few seconds; what is left open expires."""
        try:
            async with asyncio.timeout(RELEASE_S):
                for client, instance_id in reversed(self._openings):
                    await self._release(client, instance_id)
        except TimeoutError:
            logger.warning("episode %s could not be released within %.0f s", self._key, RELEASE_S)

    async def _release(self, client: EnvironmentClient, instance_id: str) -> None:
        try:
            await client.release(instance_id)
        except EnvironmentFault as fault:
            logger.warning("episode %s could not be released: %s", instance_id, fault)

    async def _through(self, ask: Callable[[EnvironmentClient, str], Awaitable[Result]]) -> Result:
        """What `ask` gets, in an episode that is opened or rebuilt where it is not open."""
        while True:
            client = self._at[0] if self._at else await self._services.choose(self._key)
            try:
                return await ask(*(self._at or await self._open(client)))
            except EnvironmentFault as fault:
                if fault.cause in SICK:
                    self._services.failed(client, fault)
                elif fault.cause != "lost":
                    raise
                if self.rebuilt == MAX_REBUILDS:
                    raise
                self._at = None

    async def _open(self, client: EnvironmentClient) -> Place:
        """Open the episode under a new instance id and send the recorded messages again."""
        place = (client, f"{self._key}.{len(self._openings)}")
        self._openings.append(place)
        start = await client.create(self._task_id, place[1], self._params)
        if self._start is None:
            self._start = start
        self._compare("its opening", _hash_start(self._start), _hash_start(start), client)
        for number, action in enumerate(self._actions, start=1):
            observation = await client.step(place[1], action.step_id, action.content, action.truncated)
            self._compare(f"message {number}", action.observed, _hash(observation), client)
        self._at = place
        return place

    def _compare(self, what: str, before: str, now: str, client: EnvironmentClient) -> None:
        if now != before:
            raise EnvironmentFault(
                "replay",
                f"rebuilt at {client.url}, {what} of {self._task_id} was answered otherwise than before: the services "
                "of one run must have the same code, data and limits",
            )


async def _nothing_more(client: EnvironmentClient, instance_id: str) -> None:
    del client, instance_id


def _hash(observation: Observation) -> str:
    return _sha256([observation.messages, observation.done, observation.turn])


def _hash_start(start: tuple[list[dict[str, str]], dict[str, Any]]) -> str:
    messages, info = start
    return _sha256([messages, {key: value for key, value in info.items() if key != "instance_id"}])


def _sha256(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
