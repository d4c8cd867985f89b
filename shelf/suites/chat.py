"""A client of OpenAI-compatible chat completions: requests, retries, and what each answer means.

The `openai` client retries overload and lost connections with growing pauses; what
no retry can fix (a wrong key, an unknown model) is told apart.
"""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from openai import (
    NOT_GIVEN,
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
)
from openai.types.chat import ChatCompletion

from seal.rollout.speaker import SpeakerFault

RETRIED = frozenset({408, 409, 425, 429})
"""Refusals that pass: the endpoint is overloaded, not set up wrongly."""

OPENAI_KEY, DASHSCOPE_KEY = "OPENAI_API_KEY", "DASHSCOPE_API_KEY"
OPENAI_URL = "https://api.openai.com/v1"
DASHSCOPE_URL = "https://dashscope.aliyuncs.com/compatible-mode/v1"
_DASHSCOPE_DOMAIN = ".aliyuncs.com"
_BACKOFF_S = 10.0
"""The longest pause of the client between two attempts, with some time to spare."""


class EndpointFault(SpeakerFault):
    """The endpoint gave no usable answer to one request; cause names the kind."""


class EndpointRefused(RuntimeError):
    """The endpoint will refuse every request; the text says what to change."""


_TOO_LONG = (("context", "length"), ("max_tokens", "max_model_len"))
"""Words of endpoints when a dialogue, or of vLLM when the limit of one message, does not fit the model's context."""


class ContextExceeded(RuntimeError):
    """The dialogue does not fit the model's context."""


@dataclass(frozen=True)
class Sampling:
    """Sampling of answers; max_tokens limits one assistant message, as the official runner's 4,096 does.

    None leaves the limit to the endpoint.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int | None = 4096


FIXED = {"repetition_penalty": 1.0, "top_k": -1}
"""Values that rollouts, validations and evaluations share; the generation_config.json of a model (Qwen2.5: 1.05 and 20)
would override them where a request leaves them out."""
TAKES_FIXED = ("vllm", "sglang")
"""Servers, as their list of models names them, that take fields which the OpenAI API does not have."""


class Reply(NamedTuple):
    """One assistant message; truncated if a length limit cut it.

    tokens and prompt_tokens are the endpoint's own counts, or 0.
    """

    text: str
    truncated: bool
    tokens: int
    prompt_tokens: int = 0


class Address(NamedTuple):
    """Where an endpoint is, and the environment variable that holds its key."""

    url: str
    key_variable: str


def address_of(base_url: str | None) -> Address:
    """The endpoint that --base-url or the environment names; ValueError if neither does.

    Without an address, OPENAI_BASE_URL counts, then the service of the key that is set. A
    key of DashScope is sent to DashScope only.
    """
    has_dashscope_key = bool(os.environ.get(DASHSCOPE_KEY))
    url = base_url or os.environ.get("OPENAI_BASE_URL")
    if not url and os.environ.get(OPENAI_KEY):
        url = OPENAI_URL
    elif not url and has_dashscope_key:
        url = DASHSCOPE_URL
    if not url:
        raise ValueError(
            f"No endpoint is named: give --base-url http://HOST:PORT/v1, or set OPENAI_BASE_URL, {OPENAI_KEY} or "
            f"{DASHSCOPE_KEY}."
        )
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"--base-url {url} is not an address: write http://HOST:PORT/v1.")
    at_dashscope = parts.hostname.endswith(_DASHSCOPE_DOMAIN)
    return Address(url, DASHSCOPE_KEY if at_dashscope and has_dashscope_key else OPENAI_KEY)


class ChatClient:
    """Asynchronous client of one model behind ``base_url`` (``http://host:port/v1``).

    timeout_s: for one attempt. proxies: whether the environment's proxies are used. extra:
    further fields of every request.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        timeout_s: float = 600.0,
        attempts: int = 6,
        key_variable: str = OPENAI_KEY,
        proxies: bool = False,
        extra: Mapping[str, Any] | None = None,
    ):
        self._url = re.sub(r"//[^/@\s]+@", "//", base_url.rstrip("/"))  # as errors show it, without a password
        self._model = model
        self._key_variable = key_variable
        self._extra = dict(extra or {})
        self._deadline_s = attempts * (timeout_s + _BACKOFF_S)
        self._client = AsyncOpenAI(
            base_url=base_url.rstrip("/"),
            api_key=os.environ.get(key_variable) or "none",  # a local server needs none
            timeout=timeout_s,
            max_retries=attempts - 1,
            http_client=DefaultAsyncHttpxClient(trust_env=proxies),
        )

    async def complete(
        self, messages: Sequence[Mapping[str, str]], sampling: Sampling, seed: int, request_id: str
    ) -> Reply:
        """The next assistant message, of min(max_tokens, what the context leaves) tokens.

        Raises ContextExceeded if the dialogue is too long, EndpointFault if no
        attempt succeeds, EndpointRefused if the endpoint would refuse every request.
        """
        try:
            return await self._complete(messages, sampling, seed, request_id)
        except ContextExceeded:  # fewer tokens are left; without a limit an endpoint gives just those
            if sampling.max_tokens is None:
                raise
            return await self._complete(messages, replace(sampling, max_tokens=None), seed, request_id)

    async def _complete(
        self, messages: Sequence[Mapping[str, str]], sampling: Sampling, seed: int, request_id: str
    ) -> Reply:
        drawn = {name: NOT_GIVEN if value is None else value for name, value in asdict(sampling).items()}
        try:
            # The client's own timeout starts again with every byte that arrives.
            async with asyncio.timeout(self._deadline_s):
                completion = await self._client.chat.completions.create(
                    model=self._model,
                    messages=list(messages),
                    seed=seed,
                    extra_headers={"X-Request-Id": request_id},
                    extra_body=self._extra,
                    **drawn,
                )
        except (APITimeoutError, TimeoutError) as error:
            raise EndpointFault("endpoint_timeout", f"{self._url} did not answer in time") from error
        except APIConnectionError as error:
            raise EndpointFault("endpoint_unreachable", f"{self._url}: {error.__cause__ or error}") from error
        except APIStatusError as error:
            raise self._refusal(error) from error
        except ValueError as error:
            raise EndpointFault("endpoint_protocol", f"{self._url} answered no chat completion: {error}") from error
        return read_reply(completion, self._url)

    async def check(self, listed: bool = True) -> bool:
        """Return whether the endpoint takes FIXED, by its list of models.

        EndpointRefused if nothing answers at the address, or a list of models lacks ours (unless not `listed`).
        """
        url = f"{self._url}/models"
        try:
            models = await self._client.with_options(max_retries=0).get("/models", cast_to=object)
        except APIStatusError:
            return False  # an endpoint need not list its models
        except (APIConnectionError, ValueError) as error:
            raise EndpointRefused(
                f"No OpenAI-compatible endpoint answers at {url} ({error.__cause__ or error}): start it, or fix "
                "--base-url."
            ) from error
        entries = models.get("data", []) if isinstance(models, dict) else []
        names = [entry.get("id") for entry in entries]
        if listed and names and self._model not in names:
            raise EndpointRefused(f"The endpoint serves {', '.join(map(str, names))}, not {self._model}: fix --model.")
        return any(entry.get("owned_by") in TAKES_FIXED for entry in entries)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _refusal(self, error: APIStatusError) -> Exception:
        """Return the exception for a status other than 200, after the last attempt."""
        status, text = error.status_code, error.response.text
        if status >= 500 or status in RETRIED:
            return EndpointFault(f"endpoint_{status}", f"{self._url} answered {status}: {text[:200]}")
        if status in (400, 413, 422) and any(all(word in text.lower() for word in words) for words in _TOO_LONG):
            return ContextExceeded(text[:200])
        return EndpointRefused(
            f"{self._url} refused the request with {status} ({text[:200]}): check --base-url, --model and "
            f"{self._key_variable}."
        )


def read_reply(completion: ChatCompletion, url: str) -> Reply:
    """The message of a completion; the client does not check its shape, so EndpointFault if it has another one.

    EndpointRefused if the endpoint parsed tool calls, so that what the model wrote is lost.
    """
    try:
        choice = completion.choices[0]
        if choice.message.tool_calls:
            raise EndpointRefused(f"{url} parses tool calls itself: start it without a tool-call parser.")
        # JSON can carry half of a surrogate pair, which no log and no other request could.
        text = (choice.message.content or "").encode("utf-8", "replace").decode()
        usage = completion.usage
        return Reply(
            text=text,
            truncated=choice.finish_reason == "length",
            tokens=(usage.completion_tokens if usage else 0) or 0,
            prompt_tokens=(usage.prompt_tokens if usage else 0) or 0,
        )
    except (AttributeError, IndexError, TypeError) as error:
        raise EndpointFault("endpoint_protocol", f"{url} answered no chat completion: {completion!r:.200}") from error
