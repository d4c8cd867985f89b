"""The environment service as seen from a rollout: typed calls with deadlines.

One client serves every trajectory of a process over pooled connections. A
request that the service may have carried out already is safe to send again:
/create names its instance, /step carries a step id, /evaluate changes nothing.
So connection failures and 5xx answers are retried within a budget; a 4xx is
ours to mend and is raised at once.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

RETRY_PAUSE_S = 0.25


class EnvironmentFault(RuntimeError):
    """The service could not answer; `cause` is one of unreachable, timeout, server_error, refused, protocol."""

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
        self._url = url.rstrip("/")
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
        data = await self._post("create", body)
        return [_message(m) for m in data["state"]], data["info"]

    async def step(self, instance_id: str, step_id: str, content: str, truncated: bool) -> Observation:
        """Send one assistant message; a repeated step_id is answered without acting again."""
        body = {
            "instance_id": instance_id,
            "step_id": step_id,
            "truncated": truncated,
            "messages": {"role": "assistant", "content": content},
        }
        data = await self._post("step", body)
        messages = tuple(_message(m) for m in data["state"])
        return Observation(messages, bool(data["is_terminated"]), int(data["info"].get("turn", 0)))

    async def evaluate(self, instance_id: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The verdict, labels and evidence of an episode; does not change it."""
        return await self._post("evaluate", {"instance_id": instance_id, "params": {"sparse": False, **params}})

    async def release(self, instance_id: str) -> None:
        """Close an episode; an unknown one is no error."""
        await self._post("release", {"instance_id": instance_id})

    async def _post(self, verb: str, body: Mapping[str, Any]) -> Any:
        fault = EnvironmentFault("unreachable", f"{self._url}/{verb} was not tried")
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(RETRY_PAUSE_S * 2**attempt)
            try:
                return await self._post_once(verb, body)
            except EnvironmentFault as error:
                if error.cause == "refused":
                    raise
                fault = error
        raise fault

    async def _post_once(self, verb: str, body: Mapping[str, Any]) -> Any:
        try:
            async with self._connected().post(f"{self._url}/{verb}", json=body) as response:
                payload = await response.json(content_type=None)
                status = response.status
        except TimeoutError as error:
            raise EnvironmentFault("timeout", f"{self._url}/{verb} gave no answer within its deadline") from error
        except aiohttp.ClientError as error:
            raise EnvironmentFault("unreachable", f"{self._url}/{verb}: {error}") from error
        except ValueError as error:
            raise EnvironmentFault("protocol", f"{self._url}/{verb} answered no JSON") from error
        if status >= 500:
            raise EnvironmentFault("server_error", f"{self._url}/{verb} answered {status}")
        if status >= 400:
            detail = payload.get("detail") if isinstance(payload, dict) else payload
            raise EnvironmentFault("refused", f"{self._url}/{verb} refused the request: {detail}")
        if not isinstance(payload, dict) or "data" not in payload:
            raise EnvironmentFault("protocol", f"{self._url}/{verb} answered without data")
        return payload["data"]

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            token = os.environ.get("BFCL_TOKEN")
            headers = {"Authorization": f"Bearer {token}"} if token else None
            # One connection a trajectory at most; the service bounds the number of open episodes.
            connector = aiohttp.TCPConnector(limit=256)
            self._session = aiohttp.ClientSession(timeout=self._timeout, connector=connector, headers=headers)
        return self._session


@functools.cache
def shared_client(url: str, env_type: str, timeout_s: float, attempts: int) -> EnvironmentClient:
    """The process's client for a service; agent loops of one worker share its connections."""
    return EnvironmentClient(url, env_type, timeout_s, attempts)


def _message(message: Mapping[str, Any]) -> dict[str, str]:
    return {"role": message["role"], "content": message["content"]}
