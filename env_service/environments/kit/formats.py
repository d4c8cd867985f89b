"""Prompt and parser formats: how to show tools, read a message and write results.

`hermes` shows each tool's document as JSON, the form on which most models with a tool template were trained; `compact`
shows names and arguments only, for policies with a small context. Both fit any environment with tool calls.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from env_service.environments.base import Call, Document
from env_service.environments.kit.calls import Parsed, read_blocks
from seal.method.interface.schema_cue import arguments_of, lists_all, required
from seal.method.interface.wording import PromptWording
from seal.system.text import clipped, without_thoughts


class Format(ABC):
    """One prompt and parser format. It holds no state: one object serves all episodes."""

    name: str
    cue_wording: PromptWording
    """The words in which cues ask for calls and answers that the parser understands."""

    @abstractmethod
    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        """Return the system message: the tools visible at the start, and what else the policy must know."""

    @abstractmethod
    def parse(self, text: str, tools: Collection[str] = ()) -> Parsed:
        """Read an assistant message. tools: the names of all documented tools."""

    @abstractmethod
    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the canonical assistant text of one call."""

    def message(self, text: str, calls: Sequence[Call]) -> str:
        """Return an assistant message with a text and calls."""
        return "\n".join(filter(None, (text, *(self.render_call(*call) for call in calls))))

    def results(self, texts: Sequence[str]) -> list[dict[str, str]]:
        """Return the messages that answer the calls of one assistant message: here one message, one block per call."""
        content = "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)
        return [{"role": "user", "content": content}]


class Hermes(Format):
    """Documents as JSON lines, calls as JSON between <tool_call> tags, whole results."""

    name = "hermes"
    cue_wording = PromptWording(
        'Write each call as <tool_call>{"name": "TOOL", "arguments": {"ARGUMENT": "VALUE"}}</tool_call>.'
    )

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        shown = ({key: tool[key] for key in ("name", "description", "parameters") if key in tool} for tool in tools)
        listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in shown)
        return (
            f"{instructions}\n\n# Tools\n\nThese tools are available, one JSON document per line:\n<tools>\n{listed}\n"
            "</tools>\n\nTo call one, write its name and its arguments as JSON between tags:\n"
            '<tool_call>\n{"name": NAME, "arguments": {ARGUMENT: VALUE}}\n</tool_call>\n'
            "A message may hold several calls; their results follow between <tool_response> tags."
        )

    def parse(self, text: str, tools: Collection[str] = ()) -> Parsed:
        """Read an assistant message; thoughts before </think> do not belong to it."""
        return read_blocks(without_thoughts(text), tools)

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


class Compact(Hermes):
    """Names and arguments of the tools, JSON without blanks, clipped results."""

    name = "compact"
    cue_wording = PromptWording(
        'Write calls as <tool_call>{"name":"TOOL","arguments":{"ARGUMENT":"VALUE"}}</tool_call>',
        answer_format="answer in plain text",
        compact=True,
    )
    characters = 600

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        """Return instructions, then each tool with its arguments; optional ones end with a question mark."""
        listed = " ".join(f"{tool['name']}({','.join(_arguments(tool))})" for tool in tools)
        return f"{instructions}\n{listed}" if instructions else listed

    def results(self, texts: Sequence[str]) -> list[dict[str, str]]:
        content = "".join(f"<tool_response>{clipped(text, self.characters)}</tool_response>" for text in texts)
        return [{"role": "user", "content": content}]

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        written = json.dumps({"name": name, "arguments": arguments}, separators=(",", ":"), ensure_ascii=False)
        return f"<tool_call>{written}</tool_call>"


AnyFormat = TypeVar("AnyFormat", bound=Format)
FORMATS: Mapping[str, Format] = {form.name: form for form in (Hermes(), Compact())}


def get_format(name: str, formats: Mapping[str, AnyFormat] = FORMATS) -> AnyFormat:
    """The format of that name; ValueError lists the known names."""
    if name not in formats:
        raise ValueError(f"tool_prompt_mode {name!r} is unknown; choose one of {', '.join(formats)}.")
    return formats[name]


def _arguments(tool: Document) -> list[str]:
    named = [name if name in required(tool) else f"{name}?" for name in arguments_of(tool["parameters"])]
    return named if lists_all(tool["parameters"]) else [*named, "..."]
