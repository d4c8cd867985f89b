"""Calls as a policy writes them: what a parser reads from a message."""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from env_service.environments.base import Call
from env_service.environments.kit.stray import stray_call


@dataclass(frozen=True)
class Parsed:
    """The parser's result for one assistant message.

    refusals: one sentence per text that looked like a call but is unreadable or off format. text: without the calls.
    """

    calls: tuple[Call, ...]
    refusals: tuple[str, ...]
    text: str


def blocks(text: str, opening: str, closing: str) -> tuple[list[str], str]:
    """Return the text between each opening and the next closing, and the rest, in time linear in the text's length."""
    found, rest, at = [], [], 0
    while (start := text.find(opening, at)) >= 0:
        end = text.find(closing, start + len(opening))
        if end < 0:
            break
        found.append(text[start + len(opening) : end])
        rest.append(text[at:start])
        at = end + len(closing)
    return found, "".join((*rest, text[at:]))


def call_of(item: Any) -> Call:
    """Return a decoded JSON value as a call; ValueError says what is wrong. The arguments may be a JSON string."""
    if not isinstance(item, dict):
        raise ValueError("it must be a JSON object.")
    for field in ("name", "arguments"):
        if field not in item:
            raise ValueError(f'it has no "{field}".')
    name, arguments = item["name"], item["arguments"]
    if isinstance(name, dict | list):
        raise ValueError('its "name" must be text.')
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError) as error:
            raise ValueError(f'its "arguments" is text but not JSON: {error}.') from error
    if not isinstance(arguments, dict):
        raise ValueError('its "arguments" must be a JSON object.')
    return str(name), arguments


def read_blocks(
    text: str,
    tools: Collection[str],
    read: Callable[[str], Call] = lambda block: call_of(json.loads(block)),
    tags: tuple[str, str] = ("<tool_call>", "</tool_call>"),
    unreadable: str = "Tool call {} cannot be read: {}.",
    advice: str = "Write a tool call between <tool_call> and </tool_call>.",
) -> Parsed:
    """Read every block as a call; an unreadable block and a call without tags each add a refusal.

    tools: the names of all documented tools. read: returns a block's call or raises. tags: those around a block.
    unreadable: the refusal of a block, given its number from 1 and the error. advice: the refusal of an unpaired tag.
    """
    calls: list[Call] = []
    refusals: list[str] = []
    found, rest = blocks(text, *tags)
    for index, block in enumerate(found, 1):
        try:
            calls.append(read(block))
        except (ValueError, RecursionError) as error:
            refusals.append(unreadable.format(index, str(error).rstrip(".")))
    if "<tool_call>" in rest or "</tool_call>" in rest:
        refusals.append(advice)
    if not calls and not refusals:
        refusals += stray_call(text, tools)
    return Parsed(tuple(calls), tuple(refusals), rest.strip())
