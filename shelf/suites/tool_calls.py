"""An episode in the format openai_fc as requests to a chat API with tools, as the official handler makes them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from env_service.environments.kit.tool_calls import read_message, split_tools


class ChatRequest(NamedTuple):
    """The messages and the `tools` (None if the prompt shows them) of a request.

    is_open: the calls of a message have no answers, because the message could not be read.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: list[dict[str, Any]] | None
    is_open: bool = False


def chat_request(dialogue: Sequence[Mapping[str, str]]) -> ChatRequest:
    """The dialogue of an episode as the next request, without thoughts."""
    messages: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    unanswered: list[Any] = []
    is_open = False
    for message in dialogue:
        role, text = message["role"], message["content"]
        if role == "tool":
            messages.append({"role": role, "content": text, "tool_call_id": unanswered.pop(0) if unanswered else None})
            continue
        is_open = is_open or bool(unanswered)
        if role == "assistant":
            content, calls = read_message(text)
            unanswered = [call.get("id") for call in calls]
            said = {"tool_calls": [_sent(call) for call in calls]} if calls else {}
            messages.append({"role": role, "content": content or (None if calls else ""), **said})
            continue
        content, shown = split_tools(text)
        tools += shown
        if content:
            messages.append({"role": role, "content": content})
    return ChatRequest(messages, tools, is_open)


def _sent(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or {}
    kept = {name: function[name] for name in ("name", "arguments") if name in function}
    return {**{name: value for name, value in call.items() if name != "index"}, "function": kept}
