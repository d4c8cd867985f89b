"""Messages that no user would write: calls pasted into them, tools or arguments by their names."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from env_service.environments.bfcl.catalog import Document
from shelf.testbed.synthesis.llm.values import without

_SHELL = frozenset(["ls", "cd", "mkdir", "rm", "rmdir", "cp", "mv", "wc", "du", "pwd", "grep", "cat", "diff"])
"""Names of tools that are in lower case without being words of a request."""

_JSON_KEY = re.compile(r"[{,]\s*[\"']\w+[\"']\s*:")
_MARKUP = re.compile(r"</?tool_call>|```")


def pasted(message: str, tools: Iterable[Document], values: Sequence[Any]) -> str | None:
    """What of a call a message copies, None if nothing: a tool's name, an argument's, a call, JSON.

    values: those that the message may say, whatever they look like.
    """
    text = without(message, values)
    if found := _JSON_KEY.search(text) or _MARKUP.search(text):
        return found[0]
    for tool in tools:
        name = tool["name"]
        if re.search(rf"(?<!\w){re.escape(name)}\s*\(", text) or (_is_technical(name) and _has_word(text, name)):
            return name
        for argument in tool["parameters"]["properties"]:
            assigned = re.search(rf"(?<!\w){re.escape(argument)}\s*=", text)
            if assigned or (_is_technical(argument) and _has_word(text, argument)):
                return argument
    return None


def _is_technical(name: str) -> bool:
    """Whether a name is not a word of plain English."""
    return "_" in name or name in _SHELL or any(letter.isupper() for letter in name[1:])


def _has_word(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None
