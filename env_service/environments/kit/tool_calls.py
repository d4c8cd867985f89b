"""Tools and their calls as a chat API has them, apart from the text: `tools` in a request, `tool_calls` in an answer.

An episode exchanges text, so both are written into it as JSON; the code that asks the model takes them out again.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from env_service.environments.base import Call, Document
from env_service.environments.kit.calls import Parsed, call_of
from env_service.environments.kit.formats import FORMATS, Format
from env_service.environments.kit.stray import stray_call
from seal.method.interface.wording import PromptWording
from seal.system.text import without_thoughts

MODE = "openai_fc"
"""The name of the format whose calls an API reads, only in evaluation."""
NATIVE = "native"
"""The name of the format whose calls the agent loop reads, only in training (`seal.rollout.native`)."""
UNREAD = "unread"
"""The key of a `tool_calls` entry that looked like a call but was not read: its value says why."""
_OPENING = '[{"type": "function"'


class ToolCalls(Format):
    """The format of models behind an API that reads tool calls itself."""

    name = MODE
    cue_wording = PromptWording("Call a tool with the API's own tool calls.")

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        return with_tools(instructions, self.definitions(tools))

    def definitions(self, tools: Sequence[Document]) -> list[dict[str, Any]]:
        """Return the entries of a request's `tools`."""
        empty = {"name": "", "description": "", "parameters": {}}
        return [{"type": "function", "function": {key: tool.get(key, empty[key]) for key in empty}} for tool in tools]

    def parse(self, text: str, tools: Collection[str] = ()) -> Parsed:
        """Read the calls of a message: all of them, or none if one is not a call, as in the official handler."""
        parsed = _read_calls(*read_message(text), tools)
        return replace(parsed, calls=(), refusals=parsed.refusals[:1]) if parsed.refusals else parsed

    def results(self, texts: Sequence[str]) -> list[dict[str, str]]:
        return [{"role": "tool", "content": text} for text in texts]

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return self.message("", [(name, arguments)])

    def message(self, text: str, calls: Sequence[Call]) -> str:
        """Return an assistant message with a text and calls."""
        return write_message(text, [entry(*call, f"call_{number}") for number, call in enumerate(calls)])


class Native(ToolCalls):
    """The format of a policy that reads and writes tools as its chat template does."""

    name = NATIVE
    cue_wording = PromptWording("Write each call in the form that the system text gives for tool calls.")

    def parse(self, text: str, tools: Collection[str] = ()) -> Parsed:
        """Read the calls of a message; whatever looked like a call but was not read becomes a refusal."""
        content, entries = read_message(text)
        return _read_calls(without_thoughts(content), entries, tools)


AGENT_FORMATS: Mapping[str, Format] = {**FORMATS, NATIVE: Native()}
"""The formats in which a policy reads the tools of an agent that brings its own tools."""


def _read_calls(content: str, entries: Sequence[Mapping[str, Any]], tools: Collection[str]) -> Parsed:
    calls: list[Call] = []
    refusals: list[str] = []
    for number, each in enumerate(entries, 1):
        try:
            if not isinstance(function := each.get("function"), dict):
                raise ValueError(each.get(UNREAD, "it is not a function's"))
            calls.append(call_of({"name": None, "arguments": None} | function))
        except (ValueError, RecursionError) as error:
            refusals.append(f"Tool call {number} cannot be read: {str(error).rstrip('.')}.")
    stray = () if calls or refusals else stray_call(content, tools)
    return Parsed(tuple(calls), (*refusals, *stray), content)


def entry(name: str, arguments: Mapping[str, Any], identity: str) -> dict[str, Any]:
    """Return an entry of `tool_calls`."""
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def write_message(content: str, calls: Sequence[Mapping[str, Any]]) -> str:
    """Return an assistant message as text: its content if there is nothing else, else JSON with `tool_calls` too."""
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
    """Return a message that also shows these tools, in its last line."""
    return f"{text}\n{json.dumps(definitions)}".lstrip("\n") if definitions else text


def split_tools(text: str) -> tuple[str, list[dict[str, Any]]]:
    """A message without the tools that `with_tools` wrote into it, and those tools."""
    before, _, last = text.rpartition("\n")
    return (before, json.loads(last)) if last.startswith(_OPENING) else (text, [])


def split_cues(system: str) -> tuple[str, str]:
    """A system text up to its tools, and the cues that Omega added after them; without tools, no cues."""
    before, found, rest = f"\n{system}".rpartition(f"\n{_OPENING}")
    tools, _, cues = rest.partition("\n")
    return (f"{before}{found}{tools}"[1:], cues.strip("\n")) if found else (system, "")
