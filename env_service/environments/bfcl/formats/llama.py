"""llama31_official_fc: what the benchmark's own Llama 3.1 function-calling handler sends and reads.

Messages are meant for plain Llama headers (`<|start_header_id|>role...`): the
date and the tools that Meta's template would add are in them already.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from env_service.environments.base import Call
from env_service.environments.bfcl.catalog import Document
from env_service.environments.bfcl.formats.base import PlainFormat, stray_call
from env_service.environments.bfcl.formats.qwen import with_hint
from env_service.environments.kit.calls import Parsed, call_of
from seal.interface.wording import PromptWording

_SYSTEM = "Environment: ipython\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
_OPENING = (
    "Given the following functions, please respond with a JSON for a function call with its proper arguments "
    'that best answers the given prompt.\n\nRespond in the format {"name": function name, "parameters": '
    "dictionary of argument name and its value}.Do not use variables.\n\n"
)
_PYTHON_TAG = "<|python_tag|>"
_ADDRESS = re.compile(r"<ast\.(\w+) object at 0x\w+>")
"""How Python names a part of an expression: with an address, which differs from run to run."""


class LlamaFormat(PlainFormat):
    """JSON calls without tags, tools in the first user message, results in role ipython."""

    name = "llama31_official_fc"
    cue_wording = PromptWording(
        'Write a message that calls a tool as {"name": "TOOL", "parameters": {"ARGUMENT": "VALUE"}} without any other '
        "text, several calls as one list of such objects, and True, False and None as in Python."
    )

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        """The fixed header of Meta's template; the tools are in the first user message."""
        return _SYSTEM

    def user(self, text: str, tools: Sequence[Document] = ()) -> str:
        """Return the message, the first one after the tools."""
        shown = (json.dumps(with_hint(tool), indent=4) + "\n\n" for tool in tools)
        return (_OPENING + "".join(shown) if tools else "") + text.strip()

    def parse(self, text: str) -> Parsed:
        """JSON objects separated by ";", or one Python literal: an object or a list of them.

        The handler takes a whole message or nothing, and evaluates the second kind;
        here it is read as a literal, so that expressions are refused.
        """
        body = text.replace(_PYTHON_TAG, "")
        try:
            return Parsed(tuple(_calls(body)), (), "")
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
            meant = _PYTHON_TAG in text or body.lstrip().startswith(("{", "[{"))
            reason = _ADDRESS.sub(r"\1", str(error)).rstrip(".") or type(error).__name__
            refusals = (f"The call cannot be read: {reason}.",) if meant else stray_call(text)
            return Parsed((), refusals, text.strip())

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """One call as a Python literal, which is JSON too unless it holds true, false or null."""
        return repr({"name": name, "parameters": dict(arguments)})


def _calls(body: str) -> list[Call]:
    if ";" in body:
        items = [json.loads(part) for part in body.split(";")]
    else:
        value = ast.literal_eval(body)
        items = [value] if isinstance(value, dict) else value
        if not isinstance(items, list | tuple):
            raise ValueError("it must be an object or a list of objects")
    calls = []
    for item in items:
        if isinstance(item, dict) and isinstance(item.get("parameters"), str):
            raise ValueError('its "parameters" must be an object')
        name, arguments = call_of(item, key="parameters")
        calls.append((name, {str(key): value for key, value in arguments.items()}))
    return calls
