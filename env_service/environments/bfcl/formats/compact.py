"""compact: the shortest prompt that still names the tools, for policies with a small context."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from env_service.environments.bfcl.catalog import Document, Task
from env_service.environments.bfcl.formats.base import Call, Format, Parsed, blocks
from env_service.environments.bfcl.formats.qwen import call_of
from env_service.environments.bfcl.formats.stray import stray_call
from seal.interface.wording import PromptWording

RESULT_CHARACTERS = 600


class CompactFormat(Format):
    """Tool names only, compact JSON calls, clipped results."""

    name = "compact"
    cue_wording = PromptWording(
        'Write calls as <tool_call>{"name":"TOOL","arguments":{"ARGUMENT":"VALUE"}}</tool_call>',
        answer_format="answer in plain text",
        compact=True,
    )

    def system(self, task: Task, tools: Sequence[Document]) -> str:
        """Return the names of the visible tools."""
        return " ".join(tool["name"] for tool in tools)

    def reveal(self, tools: Sequence[Document]) -> str:
        """Return the names of the new tools."""
        return "New tools: " + " ".join(tool["name"] for tool in tools)

    def parse(self, text: str) -> Parsed:
        """Read every block that is a call; any other block, and a call without tags, leaves a refusal."""
        calls: list[Call] = []
        refusals: list[str] = []
        found, rest = blocks(text, "<tool_call>", "</tool_call>")
        for index, block in enumerate(found, 1):
            try:
                calls.append(call_of(json.loads(block)))
            except (ValueError, RecursionError) as error:
                refusals.append(f"Tool call {index} cannot be read: {str(error).rstrip('.')}.")
        if max(text.count("<tool_call>"), text.count("</tool_call>")) > len(found):
            refusals.append("Write a tool call between <tool_call> and </tool_call>.")
        if not calls and not refusals:
            refusals += stray_call(text)
        return Parsed(tuple(calls), tuple(refusals), rest.strip())

    def results(self, texts: Sequence[str]) -> list[dict[str, str]]:
        """Return one user message with a clipped block for each result."""
        content = "".join(f"<tool_response>{_clip(text)}</tool_response>" for text in texts)
        return [{"role": "user", "content": content}]

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the call without blanks between JSON tokens."""
        call = json.dumps({"name": name, "arguments": arguments}, separators=(",", ":"), ensure_ascii=False)
        return f"<tool_call>{call}</tool_call>"


def _clip(text: str) -> str:
    return text if len(text) <= RESULT_CHARACTERS else text[:RESULT_CHARACTERS] + "..."
