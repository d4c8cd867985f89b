"""The client of the environment service, typed by `protocol.py`: asynchronous, with a blocking variant.

A request that the service may already have carried out is safe to send again: /create names its instance, /step carries
a step id, /evaluate changes nothing. The client therefore retries faults of the service or the connection within a
budget; a wrong request is our own mistake and is raised at once. The library is aiohttp: at 128 concurrent episodes,
httpx costs about twenty times the processor time per request.
"""

import asyncio
import functools
import json
import os
import threading
import uuid
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import count
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError, field_validator

from env_service import answers, protocol, variable
from seal.system.causes import Cause

DEFAULT_URL = "http://127.0.0.1:8082"
"""Where `seal serve` listens by default."""
URL_VARIABLE = "SEAL_URL"
"""The environment variable that names another address."""
DEADLINE_S = 60.0
HEALTH_TIMEOUT_S = 3.0
CLOSE_S = 5.0
_THREAD = "seal-client"
RETRY_PAUSE_S = 0.25
MAX_CONNECTIONS = 256
SICK: frozenset[Cause] = frozenset(
    {
        "environment_unreachable",
        "environment_timeout",
        "environment_server_error",
        "environment_busy",
        "environment_protocol",
    }
)
"""Causes that concern the service, not the request: another attempt, or another service, may help."""
CODES: dict[str, Cause] = {
    protocol.NO_EPISODE: "environment_lost",
    protocol.EPISODE_BROKEN: "environment_broken",
    protocol.ENVIRONMENT_FAILED: "environment_failed",
    protocol.USER_ROLE: "user_role",
}
"""The cause for each code with which the service marks a refusal."""

Answer = TypeVar("Answer", bound=BaseModel)
P = ParamSpec("P")
T = TypeVar("T")


class ServiceError(RuntimeError):
    """The service did not do what it was asked; the message says why and what to change, and cause names the cause."""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause


class AsyncServiceClient:
    """The verbs of one service for one event loop, over pooled connections.

    url: the service's address; by default SEAL_URL, else the address where `seal serve` listens.
    env_type: the environment to play. token: by default that in the service's environment variable. deadline_s: seconds
    for one attempt. attempts: how often to send a request if the fault is the service's (SICK).
    """

    def __init__(
        self,
        url: str | None = None,
        env_type: str = protocol.DEFAULT_ENVIRONMENT,
        token: str | None = None,
        deadline_s: float = DEADLINE_S,
        attempts: int = 2,
    ) -> None:
        """Connect with the first request; ValueError if `url` is not an HTTP address."""
        self.url = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"{self.url!r} is not the address of a service: write http://HOST:PORT.")
        self.env_type = env_type
        token = token or os.environ.get(variable("token"))
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._deadline_s = deadline_s
        self._attempts = attempts
        self._session: aiohttp.ClientSession | None = None

    async def version(self, env_type: str | None = None) -> protocol.VersionAnswer:
        """Return the versions that results of the service or an environment depend on; ServiceError if none answers."""
        query = f"?env_type={env_type}" if env_type else ""
        try:
            return await self._ask("GET", f"version{query}", None, protocol.VersionAnswer)
        except ServiceError as error:
            raise _foreign(self.url) if error.cause == "environment_protocol" else error from error

    async def healthy(self) -> bool:
        """Return whether the service reports within a few seconds that it is healthy."""
        try:
            timeout = aiohttp.ClientTimeout(total=HEALTH_TIMEOUT_S)
            async with self._connected().get(f"{self.url}/healthz", timeout=timeout) as response:
                return response.status == 200
        except (TimeoutError, aiohttp.ClientError):
            return False

    async def tasks(self, split: str) -> list[str]:
        """The ids of a split's tasks, in the service's order; ServiceError lists the splits if it is unknown."""
        return (await self._post("get_env_profile", env_type=self.env_type, params={"split": split})).data

    async def add_tasks(self, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Make the service serve synthesised tasks too, given as in the lines of a task file."""
        await self._post("tasks", tasks=list(tasks))

    async def create(
        self, task_id: str, instance_id: str, params: Mapping[str, Any] | None = None, **others: Any
    ) -> answers.Opening:
        """Open an episode under a name that the caller chooses; others: further fields of the request (`env_type`)."""
        fields = {"env_type": self.env_type, "create_id": instance_id, "params": dict(params or {}), **others}
        return (await self._post("create", task_id=task_id, instance_id=instance_id, **fields)).data

    async def step(
        self,
        instance_id: str,
        content: str,
        truncated: bool = False,
        step_id: str | None = None,
        role: Literal["assistant", "user"] = "assistant",
    ) -> answers.Step:
        """Send one message. truncated: a length limit cut it. A repeated step_id acts once."""
        answer = await self._post(
            "step",
            instance_id=instance_id,
            messages={"role": role, "content": content},
            step_id=step_id or uuid.uuid4().hex,
            truncated=truncated,
        )
        return answer.data

    async def evaluate(self, instance_id: str, stop: str | None = None, **params: Any) -> dict[str, Any]:
        """The verdict, figures and labels of an episode, which stays as it is.

        stop: `length` or `step_limit` if the caller ends an episode here that the service would continue.
        """
        params = params | {"sparse": False} | ({"stop": stop} if stop else {})
        return (await self._post("evaluate", _FullEvaluation, instance_id=instance_id, params=params)).data

    async def tools(self, instance_id: str) -> str:
        """The tools that are available now, as text."""
        return (await self._post("get_info", instance_id=instance_id)).data

    async def release(self, instance_id: str) -> bool:
        """Close an episode; False if it was not open."""
        return (await self._post("release", instance_id=instance_id)).success

    async def close(self) -> None:
        """Close the connections; open episodes stay open until the service expires them."""
        if self._session is not None:
            await self._session.close()

    async def _post(
        self, verb: str, answer: type[protocol.Success[Any]] | None = None, **fields: Any
    ) -> protocol.Success[Any]:
        request, success = protocol.VERBS[verb]
        try:
            body = request(**fields).model_dump_json(exclude_unset=True).encode()
        except ValidationError as error:
            raise ServiceError("environment_refused", f"the request is wrong: {protocol.first_error(error)}") from error
        return await self._ask("POST", verb, body, answer or success)

    async def _ask(self, method: str, path: str, body: bytes | None, answer: type[Answer]) -> Answer:
        """The answer to a request; raises the last fault if no attempt got an answer."""
        for attempt in count(1):
            try:
                return await self._ask_once(method, f"{self.url}/{path}", body, answer)
            except ServiceError as error:
                if error.cause not in SICK or attempt >= self._attempts:
                    raise
            await asyncio.sleep(RETRY_PAUSE_S * 2**attempt)

    async def _ask_once(self, method: str, url: str, body: bytes | None, answer: type[Answer]) -> Answer:
        try:
            async with self._connected().request(method, url, data=body) as response:
                content, status = await response.read(), response.status
        except aiohttp.ClientError as error:
            raise ServiceError(
                "environment_unreachable",
                f"No environment service answers at {self.url}: start one with `seal serve`, or name its address in "
                f"{URL_VARIABLE} or env_service.env_url ({error}).",
            ) from error
        except TimeoutError as error:
            raise ServiceError(
                "environment_timeout",
                f"The environment service at {self.url} did not answer within {self._deadline_s:g} s: see its log, or "
                "raise the deadline (env_service.timeout_s in a recipe).",
            ) from error
        if status >= 400:
            raise _refusal(self.url, status, content)
        try:
            # Not model_validate_json: it refuses nesting beyond about 200 levels, which a policy can write.
            return answer.model_validate(json.loads(content))
        except (ValueError, RecursionError) as error:
            reason = protocol.first_error(error) if isinstance(error, ValidationError) else error
            raise ServiceError(
                "environment_protocol", f"{url} sent an unreadable answer ({reason}): {content[:80]!r}"
            ) from error

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            # At most one connection per trajectory; the service bounds the number of open episodes.
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=self._deadline_s, sock_connect=self._deadline_s / 2),
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS),
                headers=self._headers,
            )
        return self._session


def _blocking(
    verb: Callable[Concatenate[AsyncServiceClient, P], Coroutine[Any, Any, T]], checks: bool = True
) -> "Callable[Concatenate[ServiceClient, P], T]":
    @functools.wraps(verb)
    def ask(self: "ServiceClient", *args: P.args, **fields: P.kwargs) -> T:
        async def request() -> T:
            return await verb(await self.checked() if checks else self.client, *args, **fields)

        return asyncio.run_coroutine_threadsafe(request(), self.loop).result()

    return ask


class ServiceClient:
    """The verbs of :class:`AsyncServiceClient`, blocking, after a check of the protocol; threads may share it."""

    def __init__(self, url: str | None = None, env_type: str = protocol.DEFAULT_ENVIRONMENT, **options: Any) -> None:
        self.client = AsyncServiceClient(url, env_type, **options)
        self.url, self.env_type = self.client.url, env_type
        self.loop = _loop(os.getpid())
        self._checked = False
        self.close = weakref.finalize(self, _close, self.client, self.loop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    version = _blocking(AsyncServiceClient.version, checks=False)
    tasks = _blocking(AsyncServiceClient.tasks)
    add_tasks = _blocking(AsyncServiceClient.add_tasks)
    create = _blocking(AsyncServiceClient.create)
    step = _blocking(AsyncServiceClient.step)
    evaluate = _blocking(AsyncServiceClient.evaluate)
    tools = _blocking(AsyncServiceClient.tools)
    release = _blocking(AsyncServiceClient.release)

    async def checked(self) -> AsyncServiceClient:
        """The client, once its service has answered in this protocol."""
        if not self._checked:
            answer = await self.client.version()
            if answer.protocol != protocol.PROTOCOL:
                raise ServiceError(
                    "environment_version",
                    f"The environment service at {self.url} speaks protocol {answer.protocol}, and this package speaks "
                    f"{protocol.PROTOCOL}: install the same version of seal-rl on both sides.",
                )
            self._checked = True
        return self.client


class _FullEvaluation(protocol.Success[dict[str, Any]]):
    @field_validator("data")
    @classmethod
    def _require_keys(cls, data: dict[str, Any]) -> dict[str, Any]:
        missing = sorted(answers.Evaluation.__required_keys__ - data.keys())
        if missing or not isinstance(data["progress_info"], dict):
            raise ValueError(f"{', '.join(missing) or 'progress_info'} missing")
        return data


@functools.cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """The event loop of a process's blocking clients, in its own thread, which a process forked from it lacks."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=_THREAD, daemon=True).start()
    return loop


def _close(client: AsyncServiceClient, loop: asyncio.AbstractEventLoop) -> None:
    closing = asyncio.run_coroutine_threadsafe(client.close(), loop)
    if threading.current_thread().name != _THREAD:  # that thread would wait for itself if it collected a client
        closing.result(CLOSE_S)


def _refusal(url: str, status: int, content: bytes) -> ServiceError:
    try:
        problem = protocol.Problem.model_validate_json(content)
    except ValidationError:
        problem = None
    detail = problem.detail if problem else "no reason given"
    if status >= 500:
        return ServiceError("environment_server_error", f"The environment service at {url} failed ({status}): {detail}")
    if status == 429:
        return ServiceError("environment_busy", f"The environment service at {url} has no room: {detail}")
    if problem is None or status == 404:
        return _foreign(url)
    return ServiceError(CODES.get(problem.code, "environment_refused"), detail)


def _foreign(url: str) -> ServiceError:
    return ServiceError(
        "environment_foreign",
        f"Something other than the environment service answers at {url}: name the service's address in "
        f"{URL_VARIABLE} or env_service.env_url.",
    )
