"""Chat-completion messages as the policy reads and writes them: text in its prompt format.

A harness sends the whole history with every request. What the policy said in it is recognised by its meaning, because
SDKs rewrite the form; the tokens stay those that were sampled.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple
from uuid import uuid4

from env_service.environments.base import Call
from env_service.environments.kit.formats import Format

MODEL = "policy"
"""The name of the policy at the gateway; requests may use any."""
ROLES = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


class ChatMessage(NamedTuple):
    """One message of a request; calls: (name, arguments as JSON with sorted keys)."""

    role: str
    text: str
    calls: tuple[tuple[str, str], ...] = ()


class Reply(NamedTuple):
    """One message of the policy: as a harness is told it, and the text that was sampled. cut: a limit cut it."""

    message: ChatMessage
    calls: tuple[Call, ...]
    sampled: str
    cut: bool


def read_messages(messages: Any) -> tuple[ChatMessage, ...]:
    """The messages of a request; ValueError names the first wrong one."""
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list with at least one message.")
    return tuple(_message(number, message) for number, message in enumerate(messages))


def _message(number: int, message: Any) -> ChatMessage:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in ROLES:
        raise ValueError(f"messages[{number}].role is {role!r}: it must be one of {', '.join(ROLES)}.")
    content = message.get("content") or ""
    parts = [{"text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list) or not all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts
    ):
        raise ValueError(f"messages[{number}].content must be text or text parts.")
    text = "".join(part["text"] for part in parts)
    try:
        calls = [
            (str(call["function"]["name"]), call["function"]["arguments"]) for call in message.get("tool_calls") or ()
        ]
        read = tuple((name, _canonical(json.loads(arguments or "{}"))) for name, arguments in calls)
    except (TypeError, KeyError, ValueError, RecursionError):
        raise ValueError(f"messages[{number}].tool_calls must hold functions with a name and JSON arguments.") from None
    return ChatMessage(ROLES[role], text.strip() if role == "assistant" else text, read)


def _canonical(arguments: Any) -> str:
    return json.dumps(arguments, sort_keys=True)


def read_tools(tools: Any) -> tuple[Mapping[str, Any], ...]:
    """The documents of a request's tools; ValueError names the first wrong one."""
    if not isinstance(tools or [], list):
        raise ValueError("tools must be a list.")
    documents = []
    for number, tool in enumerate(tools or []):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise ValueError(f"tools[{number}] must be a function with a name.")
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        documents.append(
            {"name": function["name"], "description": str(function.get("description") or ""), "parameters": parameters}
        )
    return tuple(documents)


def rendered(messages: Sequence[ChatMessage], form: Format) -> Iterator[dict[str, str]]:
    """The messages in a format: each run of tool answers as one message, and calls within the assistant's text."""
    for role, group in groupby(messages, key=lambda message: message.role):
        if role == "tool":
            yield from form.results([message.text for message in group])
            continue
        for message in group:
            calls = [form.render_call(name, json.loads(arguments)) for name, arguments in message.calls]
            yield {"role": role, "content": "\n".join(filter(None, (message.text, *calls)))}


def rendered_start(
    messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]], form: Format, cues: str
) -> list[dict[str, str]]:
    """The first messages of a dialogue: with tools, these are in the system text, and after them the cues."""
    if not tools:
        return list(rendered(messages, form))
    leading = messages[0].text if messages[0].role == "system" else ""
    rest = messages[1:] if messages[0].role == "system" else messages
    return [{"role": "system", "content": form.system(tools, leading) + cues}, *rendered(rest, form)]


def reply(sampled: str, cut: bool, form: Format | None) -> Reply:
    """A message of the policy; form: reads its calls, None for a request without tools.

    A message with a call that cannot be read is passed on as text, as servers do.
    """
    parsed = form.parse(sampled) if form else None
    if parsed is None or cut or parsed.refusals or not parsed.calls:
        return Reply(ChatMessage("assistant", sampled.strip()), (), sampled, cut)
    calls = tuple((name, _canonical(arguments)) for name, arguments in parsed.calls)
    return Reply(ChatMessage("assistant", parsed.text.strip(), calls), parsed.calls, sampled, cut)


def completion(answer: Reply, prompt: int, tokens: Sequence[tuple[str, float]], logprobs: bool) -> dict[str, Any]:
    """The body of a chat completion. prompt: its tokens; tokens: text and log-prob of each one of the message."""
    said: dict[str, Any] = {"role": "assistant", "content": answer.message.text if answer.calls else answer.sampled}
    if answer.calls:
        said["tool_calls"] = [
            {
                "id": f"call_{uuid4().hex[:24]}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for name, arguments in answer.calls
        ]
    reason = "length" if answer.cut else "tool_calls" if answer.calls else "stop"
    choice: dict[str, Any] = {"index": 0, "message": said, "finish_reason": reason}
    if logprobs:
        content = [{"token": token, "logprob": value, "top_logprobs": []} for token, value in tokens]
        choice["logprobs"] = {"content": content}
    usage = {"prompt_tokens": prompt, "completion_tokens": len(tokens), "total_tokens": prompt + len(tokens)}
    head = {"id": f"chatcmpl-{uuid4().hex}", "object": "chat.completion", "created": int(time.time()), "model": MODEL}
    return {**head, "choices": [choice], "usage": usage}


def chunks(body: Mapping[str, Any]) -> Iterator[bytes]:
    """A completion as the server-sent events of a streamed one: its message in one piece."""
    head = {key: body[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    [choice] = body["choices"]
    calls = [{"index": index, **call} for index, call in enumerate(choice["message"].get("tool_calls", ()))]
    delta = choice["message"] | ({"tool_calls": calls} if calls else {})
    said = {name: value for name, value in choice.items() if name != "message"} | {
        "delta": delta,
        "finish_reason": None,
    }
    yield _event({**head, "choices": [said]})
    yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    yield _event({**head, "choices": [], "usage": body["usage"]})
    yield b"data: [DONE]\n\n"


def _event(value: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()
