"""Tools and their calls as a chat API has them, apart from the text: `tools` in a request, `tool_calls` in an answer.

An episode exchanges text, so both are written into it as JSON; whoever asks the API takes them out again.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from env_service.environments.base import Document
from env_service.environments.kit.calls import Parsed, call_of
from env_service.environments.kit.formats import Format
from env_service.environments.kit.stray import stray_call
from seal.method.interface.wording import PromptWording

MODE = "openai_fc"
"""The name of the format. It is for evaluation alone: a policy in an engine is trained on its text."""
_OPENING = '[{"type": "function"'


class ToolCalls(Format):
    """The format of models behind an API that reads tool calls itself."""

    name = MODE
    cue_wording = PromptWording("Call a tool with the API's own tool calls.")

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        return with_tools(instructions, self.definitions(tools))

    def definitions(self, tools: Sequence[Document]) -> list[dict[str, Any]]:
        """Return the entries of a request's `tools`."""
        names = ("name", "description", "parameters")
        return [{"type": "function", "function": {name: tool[name] for name in names}} for tool in tools]

    def parse(self, text: str, tools: Collection[str] = ()) -> Parsed:
        """Read the calls of a message: all of them, or, as officially, none if one is not a call."""
        content, entries = read_message(text)
        calls = []
        for number, entry in enumerate(entries, 1):
            try:
                if not isinstance(function := entry.get("function"), dict):
                    raise ValueError("it is not a function's")
                calls.append(call_of({"name": None, "arguments": None} | function))
            except (ValueError, RecursionError) as error:
                return Parsed((), (f"Tool call {number} cannot be read: {str(error).rstrip('.')}.",), content)
        return Parsed(tuple(calls), () if calls else stray_call(content, tools), content)

    def results(self, texts: Sequence[str]) -> list[dict[str, str]]:
        return [{"role": "tool", "content": text} for text in texts]

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        function = {"name": name, "arguments": json.dumps(arguments)}
        return write_message("", [{"id": "call_0", "type": "function", "function": function}])


def write_message(content: str, calls: Sequence[Mapping[str, Any]]) -> str:
    """Return an assistant message as text: its content if that is all, else JSON with `tool_calls` beside it."""
    if content and not calls and read_message(content) == (content, []):
        return content
    return json.dumps({"content": content, "tool_calls": list(calls)})


def read_message(text: str) -> tuple[str, list[dict[str, Any]]]:
    """The content and the calls of a message; the inverse of write_message."""
    try:
        message = json.loads(text) if text.startswith('{"content": ') else {}
    except (ValueError, RecursionError):
        message = {}
    content, calls = message.get("content"), message.get("tool_calls")
    sound = isinstance(content, str) and isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
    return (content, calls) if sound else (text, [])


def with_tools(text: str, definitions: Sequence[Mapping[str, Any]]) -> str:
    """Return a message that shows these tools too, in its last line."""
    return f"{text}\n{json.dumps(definitions)}".lstrip("\n") if definitions else text


def split_tools(text: str) -> tuple[str, list[dict[str, Any]]]:
    """A message without the tools that `with_tools` wrote into it, and these."""
    before, _, last = text.rpartition("\n")
    return (before, json.loads(last)) if last.startswith(_OPENING) else (text, [])
