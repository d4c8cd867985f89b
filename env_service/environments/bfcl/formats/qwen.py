"""bfcl_qwen_fc: what the benchmark's own Qwen function-calling handler sends and reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from env_service.environments.base import Call
from env_service.environments.bfcl.catalog import CLASSES, Document, documents
from env_service.environments.bfcl.formats.base import Format, stray_call
from env_service.environments.kit.calls import Parsed, blocks, call_of
from seal.interface.wording import PromptWording

_HINT = " Note that the provided function is in Python 3 syntax."
_OPENING = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_CLOSING = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    'within <tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, '
    '"arguments": <args-json-object>}\n</tool_call>'
)


def with_hint(document: Document) -> Document:
    """The document as the package shows it: its description says that arguments are Python."""
    return {**document, "description": document["description"] + _HINT}


@cache
def _lines() -> Mapping[str, str]:
    """Every tool's document as one line of the system text, by the tool's name."""
    shown = (with_hint(document) for name in CLASSES for document in documents(name))
    return {document["name"]: f"\n{json.dumps(document)}" for document in shown}


class QwenFormat(Format):
    """Qwen's own tool template around the package's function documents."""

    name = "bfcl_qwen_fc"
    cue_wording = PromptWording(
        "Write each call as a block of three lines:\n<tool_call>\n"
        '{"name": "TOOL", "arguments": {"ARGUMENT": "VALUE"}}\n</tool_call>'
    )

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        """Return the template's system text with one JSON document per line."""
        return _OPENING + "".join(_lines()[tool["name"]] for tool in tools) + _CLOSING

    def parse(self, text: str) -> Parsed:
        """Read the calls that the package's handler would run, and name what it would drop.

        The handler skips blocks that are not JSON and gives up on the whole
        message when a block is JSON but not a call; both leave a refusal here,
        and so does a call without tags.
        """
        body = text.split("</think>")[-1].lstrip("\n") if "</think>" in text else text
        calls: list[Call] = []
        refusals: list[str] = []
        found, rest = blocks(body, "<tool_call>\n", "\n</tool_call>")
        whole = True
        for index, block in enumerate(found, 1):
            try:
                item = json.loads(block)
            except (ValueError, RecursionError) as error:
                refusals.append(f"Tool call {index} is not valid JSON: {error}.")
                continue
            try:
                calls.append(call_of(item))
            except ValueError as error:
                refusals.append(f"Tool call {index} is not a call: {error}")
                whole = False
        missing = max(body.count("<tool_call>"), body.count("</tool_call>")) - len(found)
        if missing > 0:
            refusals.append("Write a tool call between <tool_call> and </tool_call>, each tag on a line of its own.")
        if not calls and not refusals:
            refusals += stray_call(body)
        return Parsed(tuple(calls) if whole else (), tuple(refusals), rest.strip())

    def rendering_error(self, text: str) -> str | None:
        """Say why the handler, which writes every JSON block into the history, fails to write one.

        It reads blocks of the thoughts too, and needs a name that is text and arguments.
        """
        found, _ = blocks(text, "<tool_call>\n", "\n</tool_call>")
        for index, block in enumerate(found, 1):
            try:
                item = json.loads(block)
            except (ValueError, RecursionError):
                continue  # the handler drops what is not JSON
            try:
                call = item.get("function", item)
                arguments = call["arguments"]
                written = call["name"] + (arguments if isinstance(arguments, str) else json.dumps(arguments))
                written.encode()  # half a surrogate pair cannot be sent
            except (AttributeError, TypeError, KeyError, ValueError, RecursionError) as error:
                reason = f"{type(error).__name__}: {error}"
                return f"Tool call {index} cannot be written into the next prompt ({reason})."
        return None

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the call as the handler writes it into the history."""
        return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'
