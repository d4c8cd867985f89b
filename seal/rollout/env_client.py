"""The environment service as a rollout sees it: typed calls with deadlines.

One client serves every trajectory of a process over pooled connections. A
request that the service may already have carried out is safe to send again:
/create names its instance, /step carries a step id, /evaluate changes nothing.
Connection failures, unreadable answers, 429 and 5xx are therefore retried within
a budget; any other 4xx is our own mistake and is raised at once. An
`episode.Episode` survives the loss of a service.

The client is aiohttp's: at 128 concurrent episodes httpx costs about twenty times
the processor time per request. Requests outside rollouts use `service_probe`.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError, field_validator

from env_service import protocol
from env_service.answers import Message

Answer = TypeVar("Answer", bound=BaseModel)

RETRY_PAUSE_S = 0.25
HEALTH_TIMEOUT_S = 3.0
MAX_CONNECTIONS = 256
JSON_HEADERS = {"Content-Type": "application/json"}
SICK = frozenset({"unreachable", "timeout", "server_error", "busy", "protocol"})
"""Causes that concern the service, not the request: another attempt, or another service, may help."""
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
)
"""Keys that every evaluation has, beside its turn counts."""
CODES = {"no_episode": "lost", "episode_broken": "broken", "environment_failed": "failed"}
"""The cause for each code with which the service marks a refusal."""

ROLES = {"ipython": "tool"}
"""Roles that verl's token builder knows by another name; the policy's chat template writes its own."""


class EnvironmentFault(RuntimeError):
    """The service could not answer.

    cause: unreachable; timeout; server_error (5xx); busy (429); protocol (an
    unreadable answer); lost (the service does not know the episode, for example
    after a restart); broken (the episode exceeds the service's limits); failed (the
    environment raised an exception, which the message names); replay (the rebuilt
    episode got different answers); refused (the request is wrong).
    """

    def __init__(self, cause: str, message: str):
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True)
class Observation:
    """The service's answer to one assistant message.

    messages: what to append to the dialogue; done: the episode is over; turn:
    index of the current user turn.
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

    async def create(
        self, task_id: str, instance_id: str, params: Mapping[str, Any], env_type: str | None = None
    ) -> tuple[list[dict], dict]:
        """Open an episode, of the client's environment or of another one.

        Returns its first messages and the service's information about it.
        """
        answer = await self._post(
            "create",
            protocol.CreateRequest,
            protocol.CreateAnswer,
            env_type=env_type or self._env_type,
            task_id=task_id,
            instance_id=instance_id,
            create_id=instance_id,  # a repeated /create with it is answered, not refused
            params=dict(params),
        )
        return _messages(answer.data["state"]), answer.data["info"]

    async def step(self, instance_id: str, step_id: str, content: str, truncated: bool) -> Observation:
        """Send one assistant message; a repeated step_id gets the same answer and acts once."""
        answer = await self._post(
            "step",
            protocol.StepRequest,
            protocol.StepAnswer,
            instance_id=instance_id,
            messages={"role": "assistant", "content": content},
            step_id=step_id,
            truncated=truncated,
        )
        step = answer.data
        return Observation(tuple(_messages(step["state"])), step["is_terminated"], step["info"].get("turn", 0))

    async def evaluate(self, instance_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The verdict, labels and evidence of an episode; does not change it."""
        params = {"sparse": False, **params}
        request = protocol.EvaluateRequest
        return (await self._post("evaluate", request, _FullEvaluation, instance_id=instance_id, params=params)).data

    async def release(self, instance_id: str) -> None:
        """Close an episode; an unknown one is not an error."""
        await self._post("release", protocol.InstanceRequest, protocol.ReleaseAnswer, instance_id=instance_id)

    async def close(self) -> None:
        """Close the connections; a training process keeps them until it ends."""
        if self._session is not None:
            await self._session.close()

    async def healthy(self) -> bool:
        """Whether the service reports that it is healthy, within a few seconds."""
        try:
            timeout = aiohttp.ClientTimeout(total=HEALTH_TIMEOUT_S)
            async with self._connected().get(f"{self.url}/healthz", timeout=timeout) as response:
                return response.status == 200
        except (TimeoutError, aiohttp.ClientError):
            return False

    async def _post(self, verb: str, request: type[BaseModel], answer: type[Answer], **fields: Any) -> Answer:
        """The answer to a request with these fields; the last fault if no attempt brought one."""
        try:
            body = request(**fields).model_dump_json(exclude_unset=True).encode()
        except ValidationError as error:
            raise EnvironmentFault("refused", f"the request is wrong: {_first(error)}") from error
        fault = EnvironmentFault("unreachable", f"{self.url}/{verb} was not tried")
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(RETRY_PAUSE_S * 2**attempt)
            try:
                return await self._post_once(verb, body, answer)
            except EnvironmentFault as error:
                if error.cause not in SICK:
                    raise
                fault = error
        raise fault

    async def _post_once(self, verb: str, body: bytes, answer: type[Answer]) -> Answer:
        url = f"{self.url}/{verb}"
        try:
            async with self._connected().post(url, data=body, headers=JSON_HEADERS) as response:
                content, status = await response.read(), response.status
        except TimeoutError as error:
            raise EnvironmentFault(
                "timeout", f"{url} did not answer within env_service.timeout_s={self._timeout_s:g}"
            ) from error
        except aiohttp.ClientError as error:
            raise EnvironmentFault("unreachable", f"{url}: {error}") from error
        if status >= 400:
            raise _refusal(url, status, content)
        try:
            # Not model_validate_json: it refuses values nested deeper than about 200 levels, which a policy can write.
            return answer.model_validate(json.loads(content))
        except (ValueError, RecursionError) as error:
            reason = _first(error) if isinstance(error, ValidationError) else error
            raise EnvironmentFault(
                "protocol", f"{url} sent an unreadable answer ({reason}): {content[:80]!r}"
            ) from error

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            # At most one connection per trajectory; the service bounds the number of open episodes.
            connector = aiohttp.TCPConnector(limit=MAX_CONNECTIONS)
            self._session = aiohttp.ClientSession(timeout=self._timeout, connector=connector, headers=authorization())
        return self._session


class _FullEvaluation(protocol.EvaluateAnswer):
    data: dict[str, Any]

    @field_validator("data")
    @classmethod
    def _require_keys(cls, data: dict[str, Any]) -> dict[str, Any]:
        missing = [key for key in EVALUATED if key not in data]
        if missing or not isinstance(data.get("progress_info"), dict):
            raise ValueError(f"{', '.join(missing) or 'progress_info'} missing")
        return data


def authorization() -> dict[str, str]:
    """The header that a guarded service requires: BFCL_TOKEN of the environment; empty without one."""
    token = os.environ.get("BFCL_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _refusal(url: str, status: int, content: bytes) -> EnvironmentFault:
    try:
        problem = protocol.Problem.model_validate_json(content)
    except ValidationError:
        problem = protocol.Problem(detail="no reason given")
    if status >= 500:
        return EnvironmentFault("server_error", f"{url} answered {status}: {problem.detail}")
    if status == 429:
        return EnvironmentFault("busy", f"{url} has no room: {problem.detail}")
    return EnvironmentFault(CODES.get(problem.code, "refused"), f"{url} refused the request: {problem.detail}")


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))


def _messages(state: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": ROLES.get(each["role"], each["role"]), "content": each["content"]} for each in state]
