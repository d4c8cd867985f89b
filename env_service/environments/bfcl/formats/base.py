"""The interface of a tool-prompt and parser mode.

A format decides how tools are shown, how a message is read and how results are
written. It holds no state: one object serves all episodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from env_service.environments.base import Call
from env_service.environments.bfcl.catalog import Document, Task, revealed_tools
from env_service.environments.kit.calls import Parsed, blocks
from seal.interface.wording import PromptWording

__all__ = ["Call", "Format", "Parsed", "blocks"]


class Format(Protocol):
    """One tool-prompt and parser mode."""

    name: str
    cue_wording: PromptWording
    """How cues tell the policy to write calls and answers, so that :meth:`parse` understands them."""

    def system(self, task: Task, tools: Sequence[Document]) -> str:
        """Return the system message at the start, given the tools visible in turn 0."""

    def user(self, task: Task, turn: int) -> str:
        """Return the user message that opens a turn (in a reveal turn: the announcement)."""
        text = task.users[turn]
        return self.reveal(revealed_tools(task, turn)) if text is None else text

    def reveal(self, tools: Sequence[Document]) -> str:
        """Return the announcement of tools that were withheld until now."""

    def parse(self, text: str) -> Parsed:
        """Read an assistant message."""

    def results(self, texts: Sequence[str]) -> list[dict[str, str]]:
        """Return the messages that answer the calls of one assistant message: here one with a block for each."""
        content = "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)
        return [{"role": "user", "content": content}]

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the canonical assistant text of one call."""

    def rendering_error(self, text: str) -> str | None:
        """Return why the official handler fails to render the prompt after this message; None when it does not.

        The official pipeline then counts the whole task as wrong.
        """
        return None
