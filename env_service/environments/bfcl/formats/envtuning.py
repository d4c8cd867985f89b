"""envtuning_fc: thinking, Python calls between <tool_call> tags, or an answer between <answer> tags.

The wording is SEAL's own; only the shape of the messages follows the
environment-tuning line of work.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from env_service.environments.base import Call
from env_service.environments.bfcl.catalog import Document
from env_service.environments.bfcl.formats.base import Format, stray_call
from env_service.environments.bfcl.formats.python_calls import read_calls, write_call
from env_service.environments.kit.calls import Parsed, blocks
from seal.interface.wording import PromptWording

_RULES = """You complete a user's tasks with functions. At each step think inside <think></think>, then do one of two:
- call functions: <tool_call>[name(argument=value, ...), ...]</tool_call>
- when nothing is left to call, or no function or argument is there to do it: <answer>what to tell the user</answer>

Functions, one JSON document a line:
"""


class EnvTuningFormat(Format):
    """Tagged Python calls and tagged answers."""

    name = "envtuning_fc"
    cue_wording = PromptWording(
        "Write calls as <tool_call>[TOOL(ARGUMENT='VALUE')]</tool_call>, several separated by commas inside the "
        "brackets, and True, False and None as in Python.",
        answer_format="answer between <answer> and </answer> without a call",
    )

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        """Return the rules and the tools."""
        return _RULES + "\n".join(json.dumps(tool) for tool in tools)

    def reveal(self, tools: Sequence[Document]) -> str:
        """Return the new tools, one JSON document per line."""
        return "More functions can be called now:\n" + "\n".join(json.dumps(tool) for tool in tools)

    def parse(self, text: str) -> Parsed:
        """Read every block outside the thoughts; an unreadable block, and a call without tags, leaves a refusal."""
        _, body = blocks(text, "<think>", "</think>")
        calls: list[Call] = []
        refusals: list[str] = []
        found, rest = blocks(body, "<tool_call>", "</tool_call>")
        for index, block in enumerate(found, 1):
            try:
                calls += read_calls(block)
            except ValueError as error:
                refusals.append(f"Tool call block {index} cannot be read: {error}.")
        if max(body.count("<tool_call>"), body.count("</tool_call>")) > len(found):
            refusals.append("Write calls between <tool_call> and </tool_call>.")
        if not calls and not refusals:
            refusals += stray_call(body)
        return Parsed(tuple(calls), tuple(refusals), rest.strip())

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return a block of one call."""
        return f"<tool_call>[{write_call(name, arguments)}]</tool_call>"
