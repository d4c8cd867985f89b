"""Dialogues as text: chat templates of the ChatML kind, decoded without their special tokens, as verl dumps them."""

import json
import re
from typing import Any

from env_service.environments.kit.calls import blocks
from shelf.lab.foreign.chat import ChatMessage

_HEAD = re.compile(r"(?<![ \w])(system|user|assistant|tool|ipython)\n")
"""The head of a message."""


def parse_dialogue(text: str, first: str) -> list[ChatMessage]:
    """The messages of a text. first: the role of what precedes its first head."""
    before, *found = _HEAD.split(text.replace("<|im_start|>", "").replace("<|im_end|>", ""))
    said = [*([(first, before)] if before or not found else []), *zip(found[::2], found[1::2], strict=True)]
    return [ChatMessage(role=role, content=content.strip()) for role, content in said]


def tools_in(text: str) -> list[Any]:
    """The documents of tools that Qwen's template writes into the system text, one a line."""
    found = []
    for line in (line for block in blocks(text, "<tools>", "</tools>")[0] for line in block.splitlines()):
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return found
