"""One episode of a task that outlives the service that it runs on.

An episode is deterministic: its opening parameters and the messages that it received define it. When its service has
lost it (restarted, dead, failing), it is opened again, there or on another service, and the recorded messages are sent
again; every answer must be the same as before. Nothing is sampled or counted twice.
"""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from env_service.answers import Message
from env_service.client import SICK, AsyncServiceClient, ServiceError
from seal.method.interface.cues import Omega
from seal.rollout.services import Services

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Instance = tuple[AsyncServiceClient, str]
"""A service, and the id of an episode's instance on it."""
Start = tuple[list[dict[str, str]], dict[str, Any], Mapping[str, Any] | None]
"""An episode's first messages, information about it, and what a model that plays the user is told; None without one."""

MAX_REBUILDS = 3
"""Rebuilds of one episode: if it needs more, the episode itself is what brings its services down."""
RELEASE_S = 10.0
ROLES = {"ipython": "tool"}
"""Roles that verl's token builder knows by another name; the policy's chat template writes its own."""


class Observation(NamedTuple):
    """What one message led to: the messages that follow it, whether the episode is over, and the current user turn.

    user: what the user hears, if the user's message is due; None if the policy's is.
    """

    messages: tuple[dict[str, str], ...]
    done: bool
    turn: int
    user: tuple[dict[str, str], ...] | None = None


class _Message(NamedTuple):
    content: str
    truncated: bool
    role: str


class Episode:
    """The verbs of one episode, each of which survives restarts of its service; ServiceError if it cannot.

    params: those of /create. environment: the one that plays the task; by default that of the
    services' clients. others: further fields of /create, such as `refused_calls`.
    """

    def __init__(
        self, services: Services, task_id: str, params: Mapping[str, Any], environment: str | None = None, **others: Any
    ):
        self.task_id = task_id
        self._services = services
        self._key = uuid.uuid4().hex  # selects the service and begins each instance id
        self._params = params
        self._fields = ({"env_type": environment} if environment else {}) | others
        self._start: Start | None = None
        self._actions: list[tuple[_Message, Observation]] = []
        self._openings: list[Instance] = []
        self._at: Instance | None = None

    @property
    def rebuilt(self) -> int:
        """The number of times that the episode was opened again."""
        return max(0, len(self._openings) - 1)

    async def create(self) -> Start:
        """Open the episode."""
        await self._through(lambda *_: asyncio.sleep(0))  # nothing but the opening
        _require_wording(self._params.get("omega"), self._start[1])
        return self._start

    async def step(self, content: str, truncated: bool = False, role: str = "assistant") -> Observation:
        """Send one message of the policy, or of the user, and record it for a rebuild."""
        number, message = len(self._actions) + 1, _Message(content, truncated, role)
        observation = await self._through(lambda *at: _step(at, number, message))
        self._actions.append((message, observation))
        return observation

    async def evaluate(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return verdict, labels and evidence; changes nothing."""
        return await self._through(lambda client, instance_id: client.evaluate(instance_id, **params))

    async def release(self) -> None:
        """Close every instance within a few seconds; one that stays open expires."""
        try:
            async with asyncio.timeout(RELEASE_S):
                for client, instance_id in reversed(self._openings):
                    try:
                        await client.release(instance_id)
                    except ServiceError as fault:
                        logger.warning("episode %s could not be released: %s", instance_id, fault)
        except TimeoutError:
            logger.warning("episode %s could not be released within %.0f s", self._key, RELEASE_S)

    async def _through(self, ask: Callable[[AsyncServiceClient, str], Awaitable[Result]]) -> Result:
        """Return what `ask` returns; opens or rebuilds the episode first if needed."""
        while True:
            client = self._at[0] if self._at else await self._services.choose(self._key)
            try:
                return await ask(*(self._at or await self._open(client)))
            except ServiceError as fault:
                if fault.cause in SICK:
                    self._services.failed(client, fault)
                elif fault.cause != "environment_lost":
                    raise
                if self.rebuilt == MAX_REBUILDS:
                    raise
                self._at = None

    async def _open(self, client: AsyncServiceClient) -> Instance:
        """Open the episode under a new instance id and send the recorded messages again."""
        instance = (client, f"{self._key}.{len(self._openings)}")
        self._openings.append(instance)
        day = {"day": self._start[1]["day"]} if self._start and "day" in self._start[1] else {}  # midnight may be past
        opening = await client.create(self.task_id, instance[1], {**self._params, **day}, **self._fields)
        messages, info = _messages(opening["state"]), opening["info"]
        info.pop("instance_id", None)  # the rest is the same after a rebuild
        if self._start is None:
            self._start = messages, info, opening.get("user")
        self._compare("its opening", self._start, (messages, info, opening.get("user")), client)
        for number, (message, observed) in enumerate(self._actions, start=1):
            observation = await _step(instance, number, message)
            self._compare(f"message {number}", observed, observation, client)
        self._at = instance
        return instance

    def _compare(self, what: str, before: Any, now: Any, client: AsyncServiceClient) -> None:
        if now != before:
            raise ServiceError(
                "environment_replay",
                f"rebuilt at {client.url}, {what} of {self.task_id} was answered differently than before: the "
                "services of one run must have the same code, data and limits",
            )


async def _step(instance: Instance, number: int, message: _Message) -> Observation:
    client, instance_id = instance
    step = await client.step(instance_id, *message[:2], step_id=str(number), role=message.role)
    user = tuple(step["user"]) if "user" in step else None
    return Observation(tuple(_messages(step["state"])), step["is_terminated"], step["info"].get("turn", 0), user)


def _messages(state: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": ROLES.get(each["role"], each["role"]), "content": each["content"]} for each in state]


def _require_wording(omega: Mapping[str, Any] | None, info: Mapping[str, Any]) -> None:
    """Raise ServiceError if the service words the cues differently from this SEAL or leaves them out."""
    sent = Omega.from_json(omega).digest if omega is not None else None
    used = (info.get("omega") or {}).get("digest")
    if used != sent:
        raise ServiceError(
            "environment_refused",
            f"the service's cues have the wording {used} and this SEAL's {sent}: start the service from this version",
        )
