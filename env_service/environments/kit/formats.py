"""Prompt and parser formats that fit any environment with tool calls.

`hermes` shows each tool's document as JSON and is what most chat templates with tools were
trained on; `compact` shows names and arguments only, for policies with a small context.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from env_service.environments.base import Call, Document
from env_service.environments.kit.calls import Parsed, clipped, read_blocks
from env_service.environments.kit.stray import stray_call
from seal.interface.wording import PromptWording


class Hermes:
    """Documents as JSON lines, calls as JSON between <tool_call> tags, whole results."""

    name = "hermes"
    cue_wording = PromptWording(
        'Write each call as <tool_call>{"name": "TOOL", "arguments": {"ARGUMENT": "VALUE"}}</tool_call>.'
    )

    def system(self, instructions: str, tools: Sequence[Document]) -> str:
        """The system message: instructions, the tools, and how to call them."""
        listed = "\n".join(json.dumps(_shown(tool), ensure_ascii=False) for tool in tools)
        return (
            f"{instructions}\n\n# Tools\n\nThese tools are available, one JSON document per line:\n<tools>\n{listed}\n"
            "</tools>\n\nTo call one, write its name and its arguments as JSON between tags:\n"
            '<tool_call>\n{"name": NAME, "arguments": {ARGUMENT: VALUE}}\n</tool_call>\n'
            "A message may hold several calls; their results follow between <tool_response> tags."
        )

    def parse(self, text: str, tools: Collection[str]) -> Parsed:
        """Read an assistant message; thoughts before </think> do not belong to it."""
        return read_blocks(text.split("</think>")[-1], lambda body: stray_call(body, tools))

    def results(self, texts: Sequence[str]) -> str:
        """The message that answers the calls of one assistant message."""
        return "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)

    def render_call(self, call: Call) -> str:
        """The assistant text of one call."""
        name, arguments = call
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

    def system(self, instructions: str, tools: Sequence[Document]) -> str:
        """Instructions, then each tool with its arguments; optional ones end with a question mark."""
        listed = " ".join(f"{tool['name']}({','.join(_arguments(tool))})" for tool in tools)
        return f"{instructions}\n{listed}" if instructions else listed

    def results(self, texts: Sequence[str]) -> str:
        """A clipped block for each result."""
        return "".join(f"<tool_response>{clipped(text, self.characters)}</tool_response>" for text in texts)

    def render_call(self, call: Call) -> str:
        """The call without blanks between JSON tokens."""
        name, arguments = call
        written = json.dumps({"name": name, "arguments": arguments}, separators=(",", ":"), ensure_ascii=False)
        return f"<tool_call>{written}</tool_call>"


FORMATS: Mapping[str, Hermes] = {each.name: each for each in (Hermes(), Compact())}


def get_format(name: str) -> Hermes:
    """The format of that name; ValueError lists the known ones."""
    if name not in FORMATS:
        raise ValueError(f"tool_prompt_mode {name!r} is unknown; choose one of {', '.join(FORMATS)}.")
    return FORMATS[name]


def _shown(tool: Document) -> dict[str, Any]:
    return {key: tool[key] for key in ("name", "description", "parameters") if key in tool}


def _arguments(tool: Document) -> list[str]:
    required = tool["parameters"].get("required", ())
    return [name if name in required else f"{name}?" for name in tool["parameters"].get("properties", {})]
