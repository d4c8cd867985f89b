"""A model at an OpenAI-compatible endpoint: where it is, whether it can be asked, and how (answers.py reads answers).

The `openai` client retries overload and lost connections with growing pauses; this module
recognises faults that no retry can fix (a wrong key, an unknown model).
"""

import asyncio
import json
import math
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, quote, urlsplit

import httpx2
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
)
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

from seal.rollout.user import SEEDS
from seal.settings.sentences import nearest
from seal.system.files import file_sha256, json_hash
from seal.system.net import is_address, is_loopback
from seal.system.text import enumeration, one_line
from shelf.suites import FIXED
from shelf.suites.answers import (
    MISSES_THOUGHTS,
    NAMES_CALL,
    REQUEST_STATUSES,
    STREAMS_ONLY,
    CallRejected,
    ContextExceeded,
    EndpointFault,
    EndpointRefused,
    Reply,
    read_reply,
    refusal,
    refused_field,
    says,
)
from shelf.suites.serving import MODEL_FILES, require_model, served_checkpoint, status

RETRIED = frozenset({408, 409, 425, 429})
"""Temporary refusals: the endpoint is overloaded, not set up wrongly."""
FORBIDDEN = 403
UNREADABLE = frozenset({400, 422})
"""Statuses with which an endpoint rejects the content of a request."""
LIMIT = "max_completion_tokens"
"""The field that some models accept in place of max_tokens."""
LEFT_OUT = "left out"
"""Marks a field that is not sent, so that the endpoint's own value counts."""
STREAM, THOUGHTS, ADDED = "stream", "thoughts", "added"
"""What some endpoints require beyond the request: an answer in a stream, the thoughts of earlier messages."""
_EVENTS = ("data:", "event:", "id:", "retry:", ":")
"""Beginnings of lines in a stream of events; a line that begins with a colon is a comment that keeps the connection."""
ADDITIONS = {
    STREAM: "The endpoint answers only in streams: they were read.",
    THOUGHTS: "The endpoint wants the model's thoughts back with each message: they were sent.",
}
OUTAGES = frozenset(
    {"endpoint_unreachable", *(f"endpoint_{code}" for code in (429, 500, 502, 503, 504, 520, 521, 522, 523, 529))}
)
"""Causes that pass when the endpoint is up again, or its rate is no longer exceeded."""

OPENAI_KEY, DASHSCOPE_KEY = "OPENAI_API_KEY", "DASHSCOPE_API_KEY"
OPENAI_URL = "https://api.openai.com/v1"
DASHSCOPE_URL = "https://dashscope.aliyuncs.com/compatible-mode/v1"
_DASHSCOPE_DOMAIN = ".aliyuncs.com"
_BACKOFF_S = 120.0
"""The client's longest pause between two attempts, plus a margin."""
POLL_S = 1.0
CHECK_TIMEOUT_S = 30.0
TAKES_FIXED = ("vllm", "sglang")
"""Servers, as their list of models names them, that accept fields beyond the OpenAI API."""
TOOL_PARSER = "--enable-auto-tool-choice --tool-call-parser hermes"
"""Options with which vLLM reads calls from a Qwen model's text; it does so only for requests that offer tools."""


@dataclass(frozen=True)
class Sampling:
    """Sampling of answers; max_tokens limits one assistant message, like the official runner's 4,096.

    None leaves the limit to the endpoint.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int | None = 4096


@dataclass(frozen=True)
class Endpoint:
    """Where a model answers (``http://host:port/v1``), its name there, and the environment variable that holds the key.

    extra: further fields of every request. lists_models: an official tool waits forever unless ``/models``
    answers anyone with 200.
    """

    url: str
    model: str
    key_variable: str = OPENAI_KEY
    extra: Mapping[str, Any] = field(default_factory=dict)
    lists_models: bool = False

    @classmethod
    def named(cls, base_url: str | None, model: str, extra: Mapping[str, Any]) -> Self:
        """The endpoint that --base-url or the environment names; ValueError if neither does.

        Without an address, OPENAI_BASE_URL counts, then the service whose key is set. A
        DashScope key is sent only to DashScope.
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
        if not is_address(url):
            raise ValueError(f"--base-url {url} is not an address: write http://HOST:PORT/v1.")
        at_dashscope = urlsplit(url).hostname.endswith(_DASHSCOPE_DOMAIN) and has_dashscope_key
        return cls(url, model, DASHSCOPE_KEY if at_dashscope else OPENAI_KEY, extra)

    @property
    def key(self) -> str:
        """The key, or a placeholder: a local server needs none."""
        return os.environ.get(self.key_variable) or "none"

    @property
    def base(self) -> str:
        """The address without its query."""
        return self.url.partition("?")[0].rstrip("/")

    @property
    def query(self) -> dict[str, str]:
        """The query of every request: Azure's api-version."""
        return dict(parse_qsl(urlsplit(self.url).query, keep_blank_values=True))

    @property
    def headers(self) -> dict[str, str]:
        """The key in Azure's form, in addition to the client's own header."""
        return {"api-key": self.key} if "api-version" in self.query else {}

    @property
    def shown(self) -> str:
        """The address for errors: without a password and without its query, which can hold a key."""
        return re.sub(r"//[^/@\s]+@", "//", self.base)

    @property
    def proxied(self) -> bool:
        """True if requests use the environment's proxies; requests to this machine do not."""
        return not is_loopback(urlsplit(self.url).hostname or "")

    def path(self, name: str) -> str:
        """The address of a part of the API."""
        query = urlsplit(self.url).query
        return f"{self.base}/{name}?{query}" if query else f"{self.base}/{name}"

    def require(self) -> None:
        """Raise EndpointRefused for an endpoint that cannot be evaluated.

        That is: nothing answers at the address; its list of models lacks ours and a request for ours fails too
        (aliases and deployments are not listed); or it must list its models and does not.
        """
        if self.lists_models and self.query:
            raise EndpointRefused(
                f"The official tool takes no address with a query, as {self.shown}?...: name one without."
            )
        names = [entry.get("id") for entry in self._listed()]
        if unknown := bool(names) and self.model not in names:
            asked = {"model": self.model, "messages": [{"role": "user", "content": "Hello."}]}
            answer = self._ask("chat/completions", asked)
            unknown = not (answer.is_success or answer.status_code in RETRIED or says(STREAMS_ONLY, answer.text))
        if self.lists_models and status(self.path("models"), self.proxied) != httpx2.codes.OK:
            raise EndpointRefused(
                f"{self.shown}/models must answer 200, also without a key: the official tool waits for that."
            )
        if unknown:
            hint = nearest(self.model, map(str, names), ": fix --model.")
            raise EndpointRefused(f"The endpoint serves {enumeration(names)}, not {self.model}{hint}")

    def takes_fixed(self) -> bool:
        """Return whether the endpoint accepts FIXED, by its list of models; EndpointRefused as in :meth:`require`."""
        return any(entry.get("owned_by") in TAKES_FIXED for entry in self._listed())

    def _listed(self) -> list[dict[str, Any]]:
        """The models that the endpoint lists; it may list none."""
        answer = self._ask("models")
        try:
            models = answer.json() if answer.is_success else {}
        except ValueError as error:
            raise self._silent(error) from error
        data = models.get("data") if isinstance(models, dict) else None
        return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []

    def _ask(self, name: str, body: Mapping[str, Any] | None = None) -> httpx2.Response:
        """The answer of a part of the API, to a POST if there is a body, else to a GET."""
        headers = {"Authorization": f"Bearer {self.key}", **self.headers}
        try:
            client = httpx2.Client(timeout=CHECK_TIMEOUT_S, trust_env=self.proxied, follow_redirects=True)
        except (ImportError, ValueError, httpx2.InvalidURL) as error:
            raise EndpointRefused(f"The proxy that the environment names cannot be used: {error}") from error
        try:
            with client:
                return client.request("POST" if body else "GET", self.path(name), json=body, headers=headers)
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise self._silent(error) from error

    def _silent(self, error: Exception) -> EndpointRefused:
        return EndpointRefused(
            f"No OpenAI-compatible endpoint answers at {self.shown}/models ({error}): start it, or fix --base-url."
        )

    def answers_within(self, wait_s: float) -> bool:
        """Return whether the endpoint answers without a server error within wait_s seconds."""
        deadline = time.monotonic() + wait_s
        while status(self.path("models"), self.proxied) >= httpx2.codes.INTERNAL_SERVER_ERROR:
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        return True


def without_proxy(*urls: str) -> dict[str, str]:
    """Variables that keep requests to this machine's own addresses away from the environment's proxies.

    NO_PROXY omits brackets and IPv6 networks, which the tools' older client cannot read.
    """
    hosts = {host for url in urls if is_loopback(host := urlsplit(url).hostname or "")}
    known = os.environ.get("no_proxy", os.environ.get("NO_PROXY", "")).split(",")
    known = {name for each in known if (name := each.strip(" []")) and not (":" in name and "/" in name)}
    value = ",".join(sorted(known | hosts))
    return {"NO_PROXY": value, "no_proxy": value} if hosts else {}


@dataclass(frozen=True)
class EvaluatedModel:
    """The model to evaluate: at an endpoint, or an HF folder that vLLM serves here.

    name: at the endpoint, or the folder's name. serve_args: further options of ``vllm serve``.
    """

    name: str
    base_url: str | None = None
    checkpoint: Path | None = None
    serve_args: str = ""

    @classmethod
    def named(cls, name: str | None, base_url: str | None, checkpoint: Path | None, serve_args: str) -> Self:
        """The model that a command line names; ValueError if it names none or two."""
        if bool(base_url) == bool(checkpoint):
            raise ValueError("Give either --base-url (with --model) or --checkpoint.")
        if base_url and not name:
            raise ValueError("--base-url needs --model: the name under which the endpoint serves the model.")
        return cls(name or (checkpoint.resolve().name if checkpoint else ""), base_url, checkpoint, serve_args)

    @property
    def settings(self) -> dict[str, str]:
        """Its name at the endpoint, or its folder, its files' hash and serve_args; ValueError if it is not a model."""
        if self.checkpoint is None:
            return {"model": self.name}
        folder = require_model(self.checkpoint.resolve())
        files = (path for path in folder.iterdir() if path.suffix in MODEL_FILES)
        weights = json_hash({path.name: file_sha256(path) for path in files})
        return {"model": str(folder), "weights": weights} | ({"serve_args": self.serve_args} if self.serve_args else {})

    @contextmanager
    def served(self, log: Path, reads_calls: bool = False) -> Iterator[Endpoint]:
        """Where the model answers within the block; ValueError if the folder cannot be served.

        reads_calls: the server of a folder reads tool calls from answers to requests that offer tools.
        """
        if self.checkpoint is None:
            yield Endpoint(self.base_url or "", self.name)
            return
        parser = f"{TOOL_PARSER} " if reads_calls and "--tool-call-parser" not in self.serve_args else ""
        with served_checkpoint(self.checkpoint, self.name, f"{parser}{self.serve_args}", log) as url:
            yield Endpoint(url, self.name, extra=FIXED)


class ChatClient:
    """Asynchronous client of one endpoint. timeout_s: limit per attempt. wait_s: patience while the endpoint is down.

    replaced: the fields that the endpoint does not accept, with what is sent instead (another field or LEFT_OUT), and
    what it requires in addition (ADDED). A field that one of its first answers refuses is not sent again.
    """

    def __init__(self, endpoint: Endpoint, timeout_s: float = 600.0, attempts: int = 6, wait_s: float = 0.0):
        self.endpoint = endpoint
        self.replaced: dict[str, str] = {}
        self._served = False
        self._served_at = -math.inf
        self._gone: EndpointFault | None = None
        self._wait_s = wait_s
        self._deadline_s = attempts * (timeout_s + _BACKOFF_S)
        self._client = AsyncOpenAI(
            base_url=endpoint.base,
            api_key=endpoint.key,
            timeout=timeout_s,
            max_retries=attempts - 1,
            default_query=endpoint.query,
            default_headers=endpoint.headers,
            http_client=DefaultAsyncHttpxClient(trust_env=endpoint.proxied),
        )

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        seed: int,
        request_id: str,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thoughts: Sequence[Mapping[str, Any]] = (),
    ) -> Reply:
        """The next assistant message, of at most min(max_tokens, the room in the context) tokens; tools: as in the API.

        thoughts: those of the last assistant messages (`Reply`), for an endpoint that requires them back.
        Raises ContextExceeded if the dialogue is too long, RequestRefused if the model or a filter refuses,
        CallRejected if the endpoint cannot read the messages, EndpointFault if no attempt succeeds, EndpointRefused if
        the endpoint would refuse every request.
        """
        fields = {name: value for name, value in asdict(sampling).items() if value is not None}
        fields |= {"seed": seed % SEEDS, **self.endpoint.extra}
        asked = {"messages": list(messages), **({"tools": list(tools)} if tools else {})}
        request = asked, fields, request_id, thoughts
        try:
            return read_reply(await self._through_outages(*request), self.endpoint.shown, tools is not None)
        except ContextExceeded:  # fewer tokens are left; without a limit, an endpoint uses what is left
            if fields.pop("max_tokens", None) is None:
                raise
            return read_reply(await self._through_outages(*request), self.endpoint.shown, tools is not None)

    async def _through_outages(self, *request: Any) -> ChatCompletion:
        """The answer; gives up wait_s seconds after the endpoint was found to be down.

        If it answered no request in that time, nor "Hello.", it is gone: the requests that follow fail at once.
        """
        down_at = math.inf
        while True:
            if self._gone:
                raise self._gone
            try:
                completion = await self._ask(*request)
            except EndpointFault as fault:
                now = time.monotonic()
                down_at = min(down_at, now)
                if fault.cause not in OUTAGES or isinstance(fault, CallRejected) or not self._wait_s:
                    raise
                if now - down_at >= self._wait_s:
                    lives = self._served_at >= down_at or await self._answers({}, STREAM in self.replaced)
                    self._gone = None if lives else fault
                    raise
                await asyncio.sleep(min(POLL_S, self._wait_s))
            else:
                self._served_at = time.monotonic()
                return completion

    async def _ask(
        self,
        asked: Mapping[str, Any],
        fields: Mapping[str, Any],
        request_id: str,
        thoughts: Sequence[Mapping[str, Any]],
    ) -> ChatCompletion:
        """The answer to a request, sent in the form that the endpoint accepts."""
        added: set[str] = {name for name, how in self.replaced.items() if how == ADDED}
        while True:
            wanted = {**fields, **({"stream_options": {"include_usage": True}} if STREAM in added else {})}
            sent = {self.replaced.get(name, name): value for name, value in wanted.items()}
            sent.pop(LEFT_OUT, None)
            body = {**asked, **sent}
            if THOUGHTS in added:
                body["messages"] = with_thoughts(asked["messages"], thoughts)
            try:
                completion = await self._send(body, request_id, STREAM in added)
            except APIStatusError as error:
                code, text = error.status_code, error.response.text
                told = refusal(code, text, self.endpoint.shown)
                # What refuses "Hello." too, as a closed account or a company's proxy, says nothing about these words.
                if isinstance(told, ContextExceeded) or (told and await self._answers(sent, STREAM in added)):
                    raise told from error
                if code in REQUEST_STATUSES and STREAM not in added and says(STREAMS_ONLY, text):
                    added.add(STREAM)
                    continue
                if code in REQUEST_STATUSES and THOUGHTS not in added and any(thoughts) and says(MISSES_THOUGHTS, text):
                    added.add(THOUGHTS)
                    continue
                field = refused_field(text, sent) if code in REQUEST_STATUSES else None
                if field is None or (self._served and field not in (*self.replaced, *self.replaced.values())):
                    raise await self._refused(error, body, STREAM in added) from error
                name = next((name for name, other in self.replaced.items() if other == field), field)
                self.replaced[name] = LIMIT if field == "max_tokens" and LIMIT in text else LEFT_OUT
            else:
                if isinstance(completion, str) and completion.lstrip().startswith(_EVENTS) and STREAM not in added:
                    added.add(STREAM)  # it streams although it was not asked to
                    continue
                self._served = True
                self.replaced |= dict.fromkeys(added, ADDED)
                return completion

    async def _send(self, body: Mapping[str, Any], request_id: str, streams: bool = False) -> ChatCompletion:
        url = self.endpoint.shown
        try:
            # The client's own timeout restarts with every byte that arrives.
            async with asyncio.timeout(self._deadline_s):
                answer = await self._client.chat.completions.create(
                    model=self.endpoint.model,
                    messages=body["messages"],
                    extra_headers={"X-Request-Id": quote(request_id)},
                    extra_body={name: value for name, value in body.items() if name != "messages"},
                    **({"stream": True} if streams else {}),
                )
                return await _joined(answer, url) if streams else answer
        except (APITimeoutError, TimeoutError) as error:
            raise EndpointFault("endpoint_timeout", f"{url} did not answer in time") from error
        except (APIConnectionError, httpx2.HTTPError) as error:  # the client wraps no error within a stream
            raise EndpointFault("endpoint_unreachable", f"{url}: {error.__cause__ or error}") from error
        except ValueError as error:
            raise EndpointFault("endpoint_protocol", f"{url} answered no chat completion: {error}") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _refused(self, error: APIStatusError, body: Mapping[str, Any], streams: bool) -> Exception:
        """Return the exception for a status other than 200, after the last attempt.

        A status that may concern only this request does so if the endpoint answers others.
        """
        code, text, url = error.status_code, one_line(error.response.text), self.endpoint.shown
        rejected = code in UNREADABLE or (code >= 500 and says(NAMES_CALL, error.response.text))
        fault = (CallRejected if rejected else EndpointFault)(
            f"endpoint_{code}", f"{url} answered {code}: {text[:200]}"
        )
        if code >= 500 or code in RETRIED or (code in REQUEST_STATUSES and self._served):
            return fault
        if code in REQUEST_STATUSES and code != FORBIDDEN and await self._answers(body, streams):
            self._served = True
            return fault
        return EndpointRefused(
            f"{url} refused the request with {code} ({text[:200]}): check --base-url, --model and "
            f"{self.endpoint.key_variable}."
        )

    async def _answers(self, body: Mapping[str, Any], streams: bool) -> bool:
        """Whether the endpoint answers a short request with the fields of this one."""
        try:
            asked = {**body, "messages": [{"role": "user", "content": "Hello."}]}
            await self._send(asked, "seal-evaluation-probe", streams)
        except (APIStatusError, EndpointFault):
            return False
        return True


def with_thoughts(
    messages: Sequence[Mapping[str, Any]], thoughts: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The messages, with thoughts added to the assistant's last ones."""
    said = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    none = {name: "" for each in thoughts for name in each}  # for a message without thoughts
    known = {number: {**none, **each} for number, each in zip(reversed(said), reversed(thoughts), strict=False)}
    return [{**message, **known.get(number, {})} for number, message in enumerate(messages)]


@dataclass
class _Begun:
    """A call whose pieces arrive one after another in a stream."""

    index: int
    id: str | None
    named: bool = False


def _number(begun: list[_Begun], piece: ChoiceDeltaToolCall) -> int:
    """The number of the call that a piece continues or begins; LookupError if it repeats a call.

    A name begins a call, because some endpoints (Gemini) give all calls the index 0.
    """
    named = bool(piece.function and piece.function.name)
    same = [
        number
        for number, call in enumerate(begun)
        if call.index == piece.index and (not piece.id or call.id == piece.id) and not (named and call.named)
    ]
    if not same and piece.id and any((call.index, call.id) == (piece.index, piece.id) for call in begun):
        raise LookupError(f"call {piece.id} comes twice")
    if not same:
        begun.append(_Begun(piece.index, piece.id))
    number = same[-1] if same else len(begun) - 1
    begun[number].named |= named
    return number


async def _joined(chunks: AsyncStream[ChatCompletionChunk], url: str) -> ChatCompletion:
    """The completion from the pieces of a stream; EndpointFault if the stream ends early or with an error."""
    state, begun = ChatCompletionStreamState(), defaultdict(list)
    completion: Any = None
    try:
        async for chunk in chunks:
            for choice in chunk.choices:
                for piece in choice.delta.tool_calls or ():
                    piece.index = _number(begun[choice.index], piece)
            state.handle_chunk(chunk)
            completion = state.current_completion_snapshot
    except (APIStatusError, APIConnectionError):
        raise
    except APIError as error:
        text = json.dumps({"error": error.body or error.message})
        raise refusal(400, text, url) or EndpointFault(
            "endpoint_error", f"{url} answered an error: {one_line(text)[:200]}"
        ) from error
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError) as error:
        raise EndpointFault("endpoint_protocol", f"{url} answered no stream of chat completions: {error!r}") from error
    if completion is None or not all(choice.finish_reason for choice in completion.choices):
        raise EndpointFault("endpoint_error", f"{url} broke its stream off")
    return completion
