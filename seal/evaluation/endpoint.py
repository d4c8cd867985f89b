"""An OpenAI-compatible chat endpoint, as an evaluation sees it.

Plain chat completions: the benchmark's own prompt travels as messages, tools
are never passed as such, so the endpoint must not parse tool calls itself.
Overload and lost connections are retried within a budget; what no retry can
mend (a wrong key, an unknown model) ends the evaluation at once.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

RETRY_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
RETRIED = frozenset({408, 409, 425, 429})


class EndpointFault(RuntimeError):
    """The endpoint gave no usable answer to one request; cause names the kind."""

    def __init__(self, cause: str, message: str):
        super().__init__(message)
        self.cause = cause


class EndpointRefused(RuntimeError):
    """The endpoint will refuse every request; the text says what to change."""


class ContextExceeded(RuntimeError):
    """The dialogue does not fit the model's context."""


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn; max_tokens bounds one assistant message."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 1024


@dataclass(frozen=True)
class Reply:
    """One assistant message; truncated when a length limit cut it. tokens is the endpoint's own count, or 0."""

    text: str
    truncated: bool
    tokens: int


class ChatEndpoint:
    """Asynchronous client of one model behind ``base_url`` (``http://host:port/v1``)."""

    def __init__(self, base_url: str, model: str, sampling: Sampling, timeout_s: float = 600.0, attempts: int = 6):
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._model = model
        self._sampling = sampling
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._attempts = attempts
        self._session: aiohttp.ClientSession | None = None

    async def complete(self, messages: Sequence[Mapping[str, str]], seed: int, request_id: str) -> Reply:
        """The next assistant message.

        Raises ContextExceeded when the dialogue is too long, EndpointFault when
        retries are spent, EndpointRefused when the endpoint refuses us as such.
        """
        body = {
            "model": self._model,
            "messages": list(messages),
            "temperature": self._sampling.temperature,
            "top_p": self._sampling.top_p,
            "max_tokens": self._sampling.max_tokens,
            "seed": seed,
        }
        fault = EndpointFault("endpoint_unreachable", f"{self._url} was not tried")
        pause = RETRY_PAUSE_S
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(min(pause, LONGEST_PAUSE_S))
                pause *= 2
            try:
                return await self._once(body, request_id)
            except EndpointFault as error:
                fault = error
        raise fault

    async def check(self) -> None:
        """EndpointRefused when nothing answers at the address, or a list of models lacks ours."""
        url = self._url.removesuffix("/chat/completions") + "/models"
        try:
            async with self._connected().get(url) as response:
                listed = await response.json(content_type=None) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise EndpointRefused(
                f"No OpenAI-compatible endpoint answers at {url} ({error}): start it, or mend --base-url."
            ) from error
        names = [entry.get("id") for entry in listed.get("data", [])] if isinstance(listed, dict) else []
        if names and self._model not in names:
            raise EndpointRefused(f"The endpoint serves {', '.join(map(str, names))}, not {self._model}: mend --model.")

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _once(self, body: Mapping[str, Any], request_id: str) -> Reply:
        try:
            headers = {"X-Request-Id": request_id}
            async with self._connected().post(self._url, json=body, headers=headers) as response:
                text, status = await response.text(), response.status
        except TimeoutError as error:
            raise EndpointFault("endpoint_timeout", f"{self._url} gave no answer within its deadline") from error
        except aiohttp.ClientError as error:
            raise EndpointFault("endpoint_unreachable", f"{self._url}: {error}") from error
        if status >= 500 or status in RETRIED:
            raise EndpointFault(f"endpoint_{status}", f"{self._url} answered {status}: {text[:200]}")
        if status >= 400:
            if status in (400, 413, 422) and "context" in text.lower() and "length" in text.lower():
                raise ContextExceeded(text[:200])
            raise EndpointRefused(
                f"{self._url} refused the request with {status} ({text[:200]}): check --base-url, --model and "
                "OPENAI_API_KEY."
            )
        return _reply(text, self._url)

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            key = os.environ.get("OPENAI_API_KEY")
            headers = {"Authorization": f"Bearer {key}"} if key else None
            self._session = aiohttp.ClientSession(
                timeout=self._timeout, connector=aiohttp.TCPConnector(limit=0), headers=headers
            )
        return self._session


def _reply(text: str, url: str) -> Reply:
    try:
        value = json.loads(text)
        choice = value["choices"][0]
        message = choice["message"]
        # JSON can carry half of a surrogate pair, which no log and no other request could.
        content = (message.get("content") or "").encode("utf-8", "replace").decode()
        tokens = int((value.get("usage") or {}).get("completion_tokens") or 0)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise EndpointFault("endpoint_protocol", f"{url} answered no chat completion: {text[:200]}") from error
    if message.get("tool_calls"):
        raise EndpointRefused(
            f"{url} parses tool calls itself, so the benchmark would not see what the model wrote: start it without a "
            "tool-call parser."
        )
    return Reply(content, choice.get("finish_reason") == "length", tokens)
