"""Who says the user's messages if a task has a part for a language model: an endpoint, or a stored record.

The part (instructions, tools) comes from the environment and goes to no one else. Failures here are failures of
infrastructure (`user`, `user_timeout`); this module and the environment refuse what no user says (`user_role`).
"""

import asyncio
import functools
import json
import logging
import os
import re
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from env_service.environments.kit.tool_calls import write_message
from seal.rollout.speaker import SpeakerFault
from seal.settings.user import KEY_VARIABLE, UserSettings
from seal.system.text import clipped, first_line, without_thoughts

logger = logging.getLogger(__name__)

USER = "the user"
"""Who is waited for."""
ATTEMPTS, PAUSE_S = 4, 0.5
MAX_BYTES, MAX_TOKENS, SEEDS = 2**18, 1024, 2**31
"""The most bytes of the endpoint's answer and tokens of one message; providers accept only smaller seeds."""
OPTIONAL = frozenset({"max_tokens", "temperature", "seed"})
"""Fields that requests go without once the endpoint's refusal has named them, as those of OpenAI's newer models do."""
_CUT = re.compile(r"length|max_.*tokens|filter|error|abort|cancel|insufficient")
"""In a finish reason: the endpoint broke the message off."""


class Spoken(NamedTuple):
    """One message of the user: its text, with its calls if it has any (`write_message`), who said it, and its cost."""

    text: str
    source: str
    tokens_in: int = 0
    tokens_out: int = 0
    requests: int = 1
    seconds: float = 0.0


class RecordedUser:
    """Says what a user said before. said: `TrajectoryRecord.user`."""

    def __init__(self, said: Sequence[Mapping[str, Any]]) -> None:
        self._said = iter(said)

    def begin(self, part: Mapping[str, Any]) -> None:
        """The part has been played."""

    async def say(self, heard: Sequence[Mapping[str, str]]) -> Spoken:
        said = next(self._said, None)
        if said is None:
            raise SpeakerFault("user", "the record holds no further message of the user")
        return Spoken(**said)


class ModelUser:
    """A model at an OpenAI-compatible endpoint. seed: a text from which the seeds of its requests follow."""

    def __init__(self, settings: UserSettings, seed: str) -> None:
        self._settings, self._seed = settings, seed
        self._messages, self._tools = list[dict[str, Any]](), list[Any]()
        self._asked: list[str] = []
        self._said, self._refused = 0, set[str]()

    def begin(self, part: Mapping[str, Any]) -> None:
        """Take the part: `messages` and `tools`, as a request has them."""
        self._messages, self._tools = list(part["messages"]), list(part["tools"])

    async def say(self, heard: Sequence[Mapping[str, str]]) -> Spoken:
        """The next message, after what was heard since the last one; SpeakerFault."""
        calls, self._asked = self._asked, []
        for number, message in enumerate(heard):
            answers = {"tool_call_id": calls[number]} if message["role"] == "tool" else {}
            self._messages.append({**message, **answers})
        settings, began = self._settings, time.monotonic()
        body = {"model": settings.model, "messages": self._messages, "temperature": settings.temperature}
        body |= {"seed": zlib.crc32(f"{self._seed}/{self._said}".encode()) % SEEDS, "max_tokens": MAX_TOKENS}
        body |= {"tools": self._tools} if self._tools else {}
        self._said += 1
        try:
            async with _places(asyncio.get_running_loop(), settings.concurrency), asyncio.timeout(settings.timeout_s):
                answer, requests = await self._answer(body)
        except TimeoutError as error:
            late = f"message {self._said} did not come within seal.user.timeout_s={settings.timeout_s:g}"
            raise SpeakerFault("user_timeout", f"the rollout waited for the user: {late}") from error
        return self._spoken(answer, requests, time.monotonic() - began)

    async def _answer(self, body: Mapping[str, Any]) -> tuple[Any, int]:
        """The endpoint's answer, and after how many requests; SpeakerFault if it has none."""
        fault, requests, pauses = "", 0, [attempt * PAUSE_S for attempt in range(ATTEMPTS)]
        deadline = time.monotonic() + self._settings.timeout_s
        while pauses:
            await asyncio.sleep(pauses.pop(0))
            asked = {name: value for name, value in body.items() if name not in self._refused}
            requests += 1
            try:
                status, content, wait = await _post(self._settings.base_url, asked)
            except (aiohttp.ClientError, OSError) as error:
                fault = f"does not answer ({first_line(str(error), type(error).__name__)})"
                continue
            fault = f"answers with HTTP {status} ({clipped(content.decode('utf-8', 'replace').strip(), 200)})"
            if status == 200:
                with suppress(ValueError, RecursionError):
                    return json.loads(content[:MAX_BYTES]), requests
                fault = f"answers with no JSON, or with more than {MAX_BYTES} bytes"
            if status == 429 and not wait:  # some say only in words how many requests a minute may have
                wait = PAUSE_S * 2**requests
            if named := {name for name in OPTIONAL & asked.keys() if status in (400, 422) and name.encode() in content}:
                self._refused |= named
                _tell(" and ".join(sorted(named)), self._settings.model)
            elif 0 < wait < deadline - time.monotonic() and status in (429, 503):
                pauses.insert(0, wait)  # an attempt that the endpoint postpones does not count
            elif 400 <= status < 500 and status not in (408, 409, 429):
                break
        raise SpeakerFault("user", f"the user's endpoint {self._settings.base_url} {fault}")

    def _spoken(self, answer: Any, requests: int, seconds: float) -> Spoken:
        """The message in an answer; SpeakerFault if there is none."""
        try:
            message, usage = (choice := answer["choices"][0])["message"], answer.get("usage") or {}
            reason = str(choice.get("finish_reason")).lower()
            text, calls = without_thoughts(message.get("content") or "").strip(), list(message.get("tool_calls") or ())
            self._asked = [str(call.get("id") or f"call_{number}") for number, call in enumerate(calls)]
            tokens = [int(usage.get(name) or 0) for name in ("prompt_tokens", "completion_tokens")]
            json.dumps([text, calls], ensure_ascii=False).encode()  # half of a surrogate pair is not text: ValueError
        except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise SpeakerFault("user", f"the user's endpoint answers with no usable message ({error!r:.99})") from error
        if _CUT.search(reason):
            raise SpeakerFault("user", f"the user's endpoint breaks its message off (finish_reason {reason:.40})")
        if not text and not calls:
            raise SpeakerFault("user", "the user's endpoint answers with an empty message")
        if message.get("role", "assistant") != "assistant":
            raise SpeakerFault("user_role", f"the user's model answers in the role {message['role']!r:.40}")
        if "<think>" in text:
            raise SpeakerFault("user_role", "the user's model answers with thoughts that do not end")
        self._messages.append({"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {}))
        return Spoken(write_message(text, calls), self._settings.model, *tokens, requests, round(seconds, 3))


User = RecordedUser | ModelUser
"""Says the user's messages of one episode."""


@functools.cache
def _tell(fields: str, model: str) -> None:
    """Report once in each process which fields are left out."""
    logger.warning("the model that plays the user, %s, is asked without %s, which its endpoint refuses", model, fields)


async def _post(base_url: str, body: Mapping[str, Any]) -> tuple[int, bytes, float]:
    """Status, content (MAX_BYTES and a little more at most) and Retry-After in seconds, in whatever time `say` has."""
    headers = {"Authorization": f"Bearer {key}"} if (key := os.environ.get(KEY_VARIABLE)) else {}
    parts = urlsplit(base_url)  # its query may name a version, as Azure's does
    url = parts._replace(path=f"{parts.path.rstrip('/')}/chat/completions").geturl()
    async with (
        aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(None, sock_connect=30)) as session,
        session.post(url, json=body, headers=headers) as response,
    ):
        content = b""
        async for part in response.content.iter_chunked(2**16):
            content += part
            if len(content) > MAX_BYTES:
                break
        wait = response.headers.get("Retry-After", "")
        return response.status, content, float(wait) if wait.isdecimal() else 0.0


@functools.lru_cache(maxsize=1)
def _places(loop: asyncio.AbstractEventLoop, concurrency: int) -> asyncio.Semaphore:
    """The places of the process; its agent loops share an event loop."""
    return asyncio.Semaphore(concurrency)
