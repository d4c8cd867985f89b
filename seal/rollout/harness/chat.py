"""Chat-completion messages as the policy reads and writes them: text in its prompt format.

A harness sends the whole history with every request. What the policy said in it is recognised by its meaning, because
SDKs rewrite the form; the tokens stay those that were sampled.
"""

import json
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple
from uuid import uuid4

from annotated_types import Len
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PositiveInt, ValidationInfo

from env_service.environments.base import Call
from env_service.environments.kit.formats import Format
from seal.system.text import without_thoughts as after_thoughts

MODEL = "policy"
"""The name of the policy at the gateway."""


_CONSTANTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""One object each: a NaN equals only itself."""


class ChatMessage(NamedTuple):
    """One message of a request; calls: name and arguments, so that 57 and 57.0 are the same."""

    role: str
    text: str
    calls: tuple[tuple[str, Any], ...] = ()


def _meaning(name: str, arguments: Any) -> tuple[str, Any]:
    """A call; ValueError if it holds half of a surrogate pair, which no tokenizer can encode."""
    text = json.dumps([name, arguments], ensure_ascii=False)
    text.encode()
    return tuple(json.loads(text, parse_constant=_CONSTANTS.get))


def _joined(content: Any) -> str:
    parts = content if isinstance(content, list) else [{"text": "" if content is None else content}]
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        raise ValueError("must be text or text parts")
    return "".join(part["text"] for part in parts)


def _as_shown(parameters: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(parameters.get("properties", {}), dict) or not isinstance(parameters.get("required", []), list):
        raise ValueError("properties must be an object, and required a list")
    return parameters


class _Given(BaseModel):
    model_config = ConfigDict(strict=True)


class _Function(_Given):
    name: str
    arguments: str


class _Call(_Given):
    function: _Function
    id: Any = None

    def meaning(self) -> tuple[Any, tuple[str, Any]]:
        try:
            return self.id, _meaning(self.function.name, json.loads(self.function.arguments or "{}"))
        except (ValueError, RecursionError):
            raise ValueError("arguments must be JSON") from None


class _Message(_Given):
    role: Literal["developer", "system", "user", "assistant", "tool"]
    content: Annotated[str, BeforeValidator(_joined)] = ""
    tool_calls: tuple[Annotated[_Call, AfterValidator(_Call.meaning)], ...] | None = None
    tool_call_id: Any = None

    def heard(self) -> ChatMessage:
        text = without_thoughts(self.content) if self.role == "assistant" else self.content
        calls = tuple(meaning for _, meaning in self.tool_calls or ())
        return ChatMessage("system" if self.role == "developer" else self.role, text, calls)


class _Document(_Given):
    name: str
    description: str | None = None
    parameters: Annotated[dict[str, Any], AfterValidator(_as_shown)] | None = None


class _Tool(_Given):
    function: _Document

    def document(self) -> dict[str, Any]:
        tool, none = self.function, {"type": "object", "properties": {}}
        return {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters or none}


_IGNORED = frozenset(
    ["temperature", "top_p", "stop", "seed", "logit_bias", "frequency_penalty", "presence_penalty", "top_logprobs"],
)
"""Fields of a request that would only change how the policy samples, which the recipe says."""


def _the_policy(name: str | None) -> str | None:
    if name not in (None, MODEL):
        raise ValueError(f"the gateway has the model {MODEL!r} alone: ask another model at its own endpoint")
    return name


def _free(choice: Any, request: ValidationInfo) -> Any:
    if choice not in ((None, "auto") if request.data.get("tools") else (None, "auto", "none")):
        raise ValueError("the policy is free to call tools or not: leave it out or send auto")
    return choice


def _as_text(form: Any) -> Any:
    if form not in (None, {"type": "text"}):
        raise ValueError("the policy answers in text: leave it out, and read the answer yourself")
    return form


def _absent(value: Any) -> Any:
    if value:
        raise ValueError("send tools instead")
    return value


class Request(_Given):
    """What counts of a chat-completion request, and what is refused because the answer would mean something else."""

    model_config = ConfigDict(strict=True, extra="allow")

    messages: Annotated[tuple[_Message, ...], Len(1)]
    tools: tuple[_Tool, ...] | None = None
    n: Literal[1] | None = None
    max_tokens: PositiveInt | None = None
    max_completion_tokens: PositiveInt | None = None
    stream: bool | None = None
    logprobs: bool | None = None
    model: Annotated[str | None, AfterValidator(_the_policy)] = None
    tool_choice: Annotated[Any, AfterValidator(_free)] = None
    response_format: Annotated[Any, AfterValidator(_as_text)] = None
    functions: Annotated[Any, AfterValidator(_absent)] = None

    def ignored(self) -> set[str]:
        """The fields that have no effect."""
        return {name for name, value in (self.model_extra or {}).items() if name in _IGNORED and value is not None}

    def heard(self) -> tuple[ChatMessage, ...]:
        """The messages, tool answers in the order of their calls: the formats have no other sign whose they are."""
        found: list[ChatMessage] = []
        ids: list[Any] = []
        for role, group in groupby(self.messages, key=lambda message: message.role):
            run = list(group)
            if role == "tool":
                run.sort(key=lambda each: ids.index(each.tool_call_id) if each.tool_call_id in ids else len(ids))
            ids = [call for call, _ in run[-1].tool_calls or ()]
            found += (message.heard() for message in run)
        return tuple(found)


def without_thoughts(text: str) -> str:
    """What an assistant's message says after its thoughts, which SDKs drop or write anew."""
    return after_thoughts(text).strip()


def rendered(messages: Sequence[ChatMessage], form: Format) -> Iterator[dict[str, str]]:
    """The messages in a format: each run of tool answers as one message, and calls within the assistant's text."""
    for role, group in groupby(messages, key=lambda message: message.role):
        if role == "tool":
            yield from form.results([message.text for message in group])
            continue
        for message in group:
            calls = [form.render_call(*call) for call in message.calls]
            yield {"role": role, "content": "\n".join(filter(None, (message.text, *calls)))}


def rendered_start(
    messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]], form: Format, cues: str
) -> list[dict[str, str]]:
    """The first messages of a dialogue: with tools, these are in the system text, and after them the cues."""
    if not tools:
        return list(rendered(messages, form))
    heads, rest = (messages[:1], messages[1:]) if messages[0].role == "system" else ((), messages)
    system = form.system(tools, "".join(head.text for head in heads)) + cues
    return [{"role": "system", "content": system}, *rendered(rest, form)]


def _read(sampled: str, form: Format | None, tools: Collection[str]) -> tuple[ChatMessage, Sequence[Call]]:
    """A message of the policy as later requests repeat it, and its calls.

    One that cannot be read, or with a call of no tool here, leaves a text: SDKs raise at a tool that they do not know.
    """
    parsed = form.parse(sampled) if form is not None else None
    if parsed is not None and parsed.calls and not parsed.refusals and all(name in tools for name, _ in parsed.calls):
        with suppress(ValueError):
            calls = tuple(_meaning(*call) for call in parsed.calls)
            return ChatMessage("assistant", parsed.text.strip(), calls), parsed.calls
    return ChatMessage("assistant", without_thoughts(sampled)), ()


def completion(
    sampled: str,
    cut: bool,
    form: Format | None,
    tools: Collection[str],
    prompt: int,
    tokens: Sequence[tuple[str, float]],
    logprobs: bool,
) -> tuple[ChatMessage, dict[str, Any]]:
    """A message of the policy as later requests repeat it, and the body of the chat completion.

    cut: a limit cut it. form: reads its calls; None for a request without tools. tools: the names that it offers.
    prompt: the tokens of the prompt. tokens: text and log-prob of each one of the message.
    """
    heard, calls = _read(sampled, None if cut else form, tools)
    said: dict[str, Any] = {"role": "assistant", "content": heard.text if calls else sampled}
    if calls:
        functions = ({"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls)
        said["tool_calls"] = [
            {"id": f"call_{uuid4().hex[:24]}", "type": "function", "function": function} for function in functions
        ]
    reason = "length" if cut else "tool_calls" if calls else "stop"
    choice: dict[str, Any] = {"index": 0, "message": said, "finish_reason": reason}
    if logprobs:
        content = [{"token": token, "logprob": value, "top_logprobs": []} for token, value in tokens]
        choice["logprobs"] = {"content": content}
    usage = {"prompt_tokens": prompt, "completion_tokens": len(tokens), "total_tokens": prompt + len(tokens)}
    head = {"id": f"chatcmpl-{uuid4().hex}", "object": "chat.completion", "created": int(time.time()), "model": MODEL}
    return heard, {**head, "choices": [choice], "usage": usage}


def events(body: Mapping[str, Any]) -> bytes:
    """A completion as the server-sent events of a streamed one: its message in one piece."""
    [choice] = body["choices"]
    calls = [{"index": index, **call} for index, call in enumerate(choice["message"].get("tool_calls", ()))]
    delta = choice["message"] | ({"tool_calls": calls} if calls else {})
    said = {name: value for name, value in choice.items() if name != "message"} | {"delta": delta}
    chunk = {**body, "object": "chat.completion.chunk", "choices": [said]}
    return f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
