"""compact: the shortest prompt that still names the tools, for policies with a small context.

compact_arguments: the same, and what each tool's document says of its arguments' names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from env_service.environments.bfcl.catalog import Document, Task
from env_service.environments.bfcl.formats.base import Format, Parsed
from env_service.environments.bfcl.formats.stray import stray_call
from env_service.environments.kit.calls import clipped, read_blocks
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
        return read_blocks(text, stray_call)

    def results(self, texts: Sequence[str]) -> list[dict[str, str]]:
        """Return one user message with a clipped block for each result."""
        content = "".join(f"<tool_response>{clipped(text, RESULT_CHARACTERS)}</tool_response>" for text in texts)
        return [{"role": "user", "content": content}]

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the call without blanks between JSON tokens."""
        call = json.dumps({"name": name, "arguments": arguments}, separators=(",", ":"), ensure_ascii=False)
        return f"<tool_call>{call}</tool_call>"


class CompactArgumentsFormat(CompactFormat):
    """Tool names, then each tool with the names of its arguments; otherwise compact."""

    name = "compact_arguments"

    def system(self, task: Task, tools: Sequence[Document]) -> str:
        """Return the names of the visible tools and a line with their arguments."""
        return f"{super().system(task, tools)}\n{_arguments(tools)}"

    def reveal(self, tools: Sequence[Document]) -> str:
        """Return the names of the new tools and a line with their arguments."""
        return f"{super().reveal(tools)}\n{_arguments(tools)}"


def _arguments(tools: Sequence[Document]) -> str:
    """ "Arguments: cp source destination; ls a?": required ones first, optional ones with a question mark."""
    return "Arguments: " + "; ".join(" ".join((tool["name"], *_names(tool))) for tool in tools)


def _names(tool: Document) -> list[str]:
    required = tool["parameters"].get("required", ())
    optional = [f"{name}?" for name in tool["parameters"].get("properties", {}) if name not in required]
    return [*required, *optional]
