"""The environment service as seen from a rollout: typed calls with deadlines.

One client serves every trajectory of a process over pooled connections. A
request that the service may have carried out already is safe to send again:
/create names its instance, /step carries a step id, /evaluate changes nothing.
So connection failures, garbage, 429 and 5xx answers are retried within a budget;
another 4xx is ours to mend and is raised at once. What outlives a service is an
`episode.Episode`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

Result = TypeVar("Result")

RETRY_PAUSE_S = 0.25
HEALTH_TIMEOUT_S = 3.0
SICK = frozenset({"unreachable", "timeout", "server_error", "busy", "protocol"})
"""Causes that say something about the service, not about the request: another try, or another service, may help."""
EVALUATED = (
    "valid",
    "labels",
    "diagnosis",
    "evidence",
    "progress",
    "turns",
    "calls",
    "errors",
    "stop",
    "bfcl_progress_info",
)
"""What every evaluation holds."""
CODES = {"no_episode": "lost", "episode_broken": "broken"}
"""Refusals that the service marks with a code, and the cause that each becomes."""

ROLES = {"ipython": "tool"}
"""Roles that verl's token builder knows by another name; the policy's chat template writes its own."""


class EnvironmentFault(RuntimeError):
    """The service could not answer.

    cause: unreachable; timeout; server_error (5xx); busy (429); protocol (no
    answer that could be read); lost (the service does not know the episode, as
    after a restart); broken (the episode exceeds the service's limits); replay
    (rebuilt, it answered otherwise than before); refused (the request is wrong).
    """

    def __init__(self, cause: str, message: str):
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True)
class Observation:
    """What the service answered to one assistant message.

    messages: what to append to the dialogue; done: the episode is over; turn:
    index of the user turn that the episode is now in.
    """

    messages: tuple[dict[str, str], ...]
    done: bool
    turn: int


class EnvironmentClient:
    """Asynchronous client of the environment service's public protocol."""

    def __init__(self, url: str, env_type: str, timeout_s: float, attempts: int):
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._env_type = env_type
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._attempts = attempts
        self._session: aiohttp.ClientSession | None = None

    async def create(self, task_id: str, instance_id: str, params: Mapping[str, Any]) -> tuple[list[dict], dict]:
        """Open an episode; returns its first messages and the service's information about it."""
        body = {
            "env_type": self._env_type,
            "task_id": task_id,
            "instance_id": instance_id,
            "create_id": instance_id,  # a repeated /create with it is answered, not refused
            "params": dict(params),
        }
        return await self._post("create", body, lambda data: (_messages(data), dict(data["info"])))

    async def step(self, instance_id: str, step_id: str, content: str, truncated: bool) -> Observation:
        """Send one assistant message; a repeated step_id is answered without acting again."""
        body = {
            "instance_id": instance_id,
            "step_id": step_id,
            "truncated": truncated,
            "messages": {"role": "assistant", "content": content},
        }
        return await self._post(
            "step",
            body,
            lambda data: Observation(
                tuple(_messages(data)), bool(data["is_terminated"]), int(data["info"].get("turn", 0))
            ),
        )

    async def evaluate(self, instance_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The verdict, labels and evidence of an episode; does not change it."""
        body = {"instance_id": instance_id, "params": {"sparse": False, **params}}
        return await self._post("evaluate", body, _evaluation)

    async def release(self, instance_id: str) -> None:
        """Close an episode; an unknown one is no error."""
        await self._post("release", {"instance_id": instance_id}, lambda _: None)

    async def close(self) -> None:
        """Close the connections; a training process keeps them to its end."""
        if self._session is not None:
            await self._session.close()

    async def healthy(self) -> bool:
        """Whether the service says that it is well, within a few seconds."""
        try:
            timeout = aiohttp.ClientTimeout(total=HEALTH_TIMEOUT_S)
            async with self._connected().get(f"{self.url}/healthz", timeout=timeout) as response:
                return response.status == 200
        except (TimeoutError, aiohttp.ClientError):
            return False

    async def _post(self, verb: str, body: Mapping[str, Any], read: Callable[[Any], Result]) -> Result:
        """What `read` makes of the answer's data; the last fault when no attempt brought any."""
        fault = EnvironmentFault("unreachable", f"{self.url}/{verb} was not tried")
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(RETRY_PAUSE_S * 2**attempt)
            try:
                data = await self._post_once(verb, body)
                try:
                    return read(data)
                except (KeyError, TypeError, ValueError) as error:
                    raise EnvironmentFault(
                        "protocol", f"{self.url}/{verb} answered data of another shape ({error!r})"
                    ) from error
            except EnvironmentFault as error:
                if error.cause not in SICK:
                    raise
                fault = error
        raise fault

    async def _post_once(self, verb: str, body: Mapping[str, Any]) -> Any:
        where = f"{self.url}/{verb}"
        try:
            async with self._connected().post(where, json=body) as response:
                content, status = await response.read(), response.status
        except TimeoutError as error:
            raise EnvironmentFault(
                "timeout", f"{where} gave no answer within env_service.timeout_s={self._timeout_s:g}"
            ) from error
        except aiohttp.ClientError as error:
            raise EnvironmentFault("unreachable", f"{where}: {error}") from error
        try:
            payload = json.loads(content)
        except ValueError:
            payload = None
        problem = payload if isinstance(payload, dict) else {}
        detail = problem.get("detail", "no reason given")
        if status >= 500:
            raise EnvironmentFault("server_error", f"{where} answered {status}: {detail}")
        if status == 429:
            raise EnvironmentFault("busy", f"{where} has no room: {detail}")
        if status >= 400:
            raise EnvironmentFault(CODES.get(problem.get("code"), "refused"), f"{where} refused the request: {detail}")
        if "data" not in problem:
            raise EnvironmentFault("protocol", f"{where} answered something that is no answer: {content[:80]!r}")
        return problem["data"]

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            # One connection a trajectory at most; the service bounds the number of open episodes.
            connector = aiohttp.TCPConnector(limit=256)
            self._session = aiohttp.ClientSession(timeout=self._timeout, connector=connector, headers=authorization())
        return self._session


def authorization() -> dict[str, str]:
    """The header that a guarded service asks for: BFCL_TOKEN of the environment, nothing without one."""
    token = os.environ.get("BFCL_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _evaluation(data: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, **{key: data[key] for key in EVALUATED}}


def _messages(data: Mapping[str, Any]) -> list[dict[str, str]]:
    return [
        {"role": ROLES.get(message["role"], message["role"]), "content": message["content"]}
        for message in data["state"]
    ]
