"""compact: the shortest prompt that still names the tools, for policies with a small context.

compact_arguments: the same, and what each tool's document says of its arguments' names.
"""

from __future__ import annotations

from collections.abc import Sequence

from env_service.environments.bfcl.catalog import Document
from env_service.environments.bfcl.formats.base import Format, tool_names
from env_service.environments.kit import formats
from env_service.environments.kit.calls import Parsed, read_blocks


class CompactFormat(Format, formats.Compact):
    """Tool names only, compact JSON calls, clipped results."""

    name = "compact"

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        """Return the names of the visible tools."""
        return " ".join(tool["name"] for tool in tools)

    def reveal(self, tools: Sequence[Document]) -> str:
        """Return the names of the new tools."""
        return "New tools: " + " ".join(tool["name"] for tool in tools)

    def parse(self, text: str) -> Parsed:
        """Read every block that is a call; any other block, and a call without tags, leaves a refusal."""
        return read_blocks(text, tool_names())


class CompactArgumentsFormat(CompactFormat):
    """Tool names, then each tool with the names of its arguments; otherwise compact."""

    name = "compact_arguments"

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        """Return the names of the visible tools and a line with their arguments."""
        return f"{super().system(tools)}\n{_arguments(tools)}"

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
