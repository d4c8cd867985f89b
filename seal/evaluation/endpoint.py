"""An OpenAI-compatible chat endpoint, as an evaluation sees it.

Plain chat completions: the benchmark's own prompt travels as messages, tools
are never passed as such, so the endpoint must not parse tool calls itself. The
`openai` client retries overload and lost connections; what no retry can fix (a
wrong key, an unknown model) ends the evaluation at once.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from openai import (
    NOT_GIVEN,
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
    NotGiven,
)
from openai.types.chat import ChatCompletion

RETRIED = frozenset({408, 409, 425, 429})
"""Refusals that pass: the endpoint is overloaded, not set up wrongly."""


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
    """How answers are drawn; max_tokens limits one assistant message, as the official runner's 4,096 does."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 4096


class Reply(NamedTuple):
    """One assistant message; truncated if a length limit cut it. tokens is the endpoint's own count, or 0."""

    text: str
    truncated: bool
    tokens: int


class ChatEndpoint:
    """Asynchronous client of one model behind ``base_url`` (``http://host:port/v1``)."""

    def __init__(self, base_url: str, model: str, sampling: Sampling, timeout_s: float = 600.0, attempts: int = 6):
        self._url = base_url.rstrip("/")
        self._model = model
        self._sampling = sampling
        self._client = AsyncOpenAI(
            base_url=self._url,
            api_key=os.environ.get("OPENAI_API_KEY") or "none",  # a local server needs none
            timeout=timeout_s,
            max_retries=attempts - 1,
            http_client=DefaultAsyncHttpxClient(trust_env=False),  # no proxy, like the service's client
        )

    async def complete(self, messages: Sequence[Mapping[str, str]], seed: int, request_id: str) -> Reply:
        """The next assistant message, of min(max_tokens, what the context leaves) tokens.

        Raises ContextExceeded if the dialogue is too long, EndpointFault if no
        attempt succeeds, EndpointRefused if the endpoint would refuse every request.
        """
        try:
            return await self._complete(messages, seed, request_id, self._sampling.max_tokens)
        except ContextExceeded:  # fewer tokens are left; without a limit an endpoint gives just those
            return await self._complete(messages, seed, request_id, NOT_GIVEN)

    async def _complete(
        self, messages: Sequence[Mapping[str, str]], seed: int, request_id: str, max_tokens: int | NotGiven
    ) -> Reply:
        try:
            completion = await self._client.chat.completions.create(
                model=self._model,
                messages=list(messages),
                temperature=self._sampling.temperature,
                top_p=self._sampling.top_p,
                max_tokens=max_tokens,
                seed=seed,
                extra_headers={"X-Request-Id": request_id},
            )
        except APITimeoutError as error:
            raise EndpointFault("endpoint_timeout", f"{self._url} did not answer in time") from error
        except APIConnectionError as error:
            raise EndpointFault("endpoint_unreachable", f"{self._url}: {error.__cause__ or error}") from error
        except APIStatusError as error:
            raise _refusal(error, self._url) from error
        except ValueError as error:
            raise EndpointFault("endpoint_protocol", f"{self._url} answered no chat completion: {error}") from error
        return read_reply(completion, self._url)

    async def check(self) -> None:
        """EndpointRefused if nothing answers at the address, or a list of models lacks ours."""
        url = f"{self._url}/models"
        try:
            listed = await self._client.with_options(max_retries=0).get("/models", cast_to=object)
        except APIStatusError:
            return  # an endpoint need not list its models
        except (APIConnectionError, ValueError) as error:
            raise EndpointRefused(
                f"No OpenAI-compatible endpoint answers at {url} ({error.__cause__ or error}): start it, or fix "
                "--base-url."
            ) from error
        names = [entry.get("id") for entry in listed.get("data", [])] if isinstance(listed, dict) else []
        if names and self._model not in names:
            raise EndpointRefused(f"The endpoint serves {', '.join(map(str, names))}, not {self._model}: fix --model.")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _refusal(error: APIStatusError, url: str) -> Exception:
    """What a status other than 200 means, after the last attempt."""
    status, text = error.status_code, error.response.text
    if status >= 500 or status in RETRIED:
        return EndpointFault(f"endpoint_{status}", f"{url} answered {status}: {text[:200]}")
    if status in (400, 413, 422) and "context" in text.lower() and "length" in text.lower():
        return ContextExceeded(text[:200])
    return EndpointRefused(
        f"{url} refused the request with {status} ({text[:200]}): check --base-url, --model and OPENAI_API_KEY."
    )


def read_reply(completion: ChatCompletion, url: str) -> Reply:
    """The message of a completion; the client does not check its shape, so EndpointFault if it has another one."""
    try:
        choice = completion.choices[0]
        # JSON can carry half of a surrogate pair, which no log and no other request could.
        text = (choice.message.content or "").encode("utf-8", "replace").decode()
        tool_calls = choice.message.tool_calls
        tokens = completion.usage.completion_tokens if completion.usage else 0
    except (AttributeError, IndexError, TypeError) as error:
        raise EndpointFault("endpoint_protocol", f"{url} answered no chat completion: {completion!r:.200}") from error
    if tool_calls:
        raise EndpointRefused(
            f"{url} parses tool calls itself, so the benchmark would not see what the model wrote: start it without a "
            "tool-call parser."
        )
    return Reply(text, choice.finish_reason == "length", tokens or 0)
