"""toolace_official_prompt (also toolace_fc): the benchmark's default prompt, which ToolACE-2 is scored with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bfcl_eval.constants.default_prompts import (
    _PLAINTEXT_SYSTEM_PROMPT_TEMPLATE,
    OUTPUT_FORMAT_MAPPING,
    PROMPT_STYLE_TEMPLATES,
)

from env_service.environments.bfcl.catalog import Document
from env_service.environments.bfcl.formats.base import PlainFormat, stray_call
from env_service.environments.bfcl.formats.python_calls import looks_like_calls, read_calls, write_call
from env_service.environments.bfcl.formats.qwen import with_hint
from env_service.environments.kit.calls import Parsed
from seal.interface.wording import PromptWording


class ToolaceFormat(PlainFormat):
    """Calls as a Python list, tools as one indented JSON list in the system message, results in role ipython."""

    name = "toolace_official_prompt"
    cue_wording = PromptWording(
        "Write a message that calls tools as [TOOL(ARGUMENT='VALUE')] without any other text, several calls separated "
        "by commas inside the brackets, and True, False and None as in Python."
    )

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        """Return the package's default system prompt."""
        style = PROMPT_STYLE_TEMPLATES["classic"]
        call_format = style["tool_call_no_tag"].format(output_format=OUTPUT_FORMAT_MAPPING["python"], param_types="")
        functions = json.dumps([with_hint(tool) for tool in tools], indent=4)
        return _PLAINTEXT_SYSTEM_PROMPT_TEMPLATE.format(
            persona=style["persona"],
            task=style["task"],
            tool_call_format=call_format,
            multiturn_behavior=style["multiturn_behavior"],
            available_tools=style["available_tools"].format(format="json", functions=functions),
        ).strip()

    def parse(self, text: str) -> Parsed:
        """Read the whole message as a list of calls, or as an answer."""
        try:
            return Parsed(tuple(read_calls(text)), (), "")
        except ValueError as error:
            refusals = (f"The calls cannot be read: {error}.",) if looks_like_calls(text) else stray_call(text)
            return Parsed((), refusals, text.strip())

    def results(self, texts: Sequence[str]) -> list[dict[str, str]]:
        """Return one message per result, without blanks around it."""
        return super().results([text.strip() for text in texts])

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return a list of one call."""
        return f"[{write_call(name, arguments)}]"
