"""The benchmark's prompt and parser modes, by name: those of its own handlers, and shorter ones."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

from env_service.environments.base import Call
from env_service.environments.bfcl.catalog import Document, tool_documents
from env_service.environments.bfcl.python_calls import looks_like_calls, read_calls, write_call
from env_service.environments.kit import formats
from env_service.environments.kit.calls import Parsed, blocks, call_of, read_blocks
from env_service.environments.kit.stray import stray_call
from env_service.environments.kit.tool_calls import MODE, NATIVE, Native, ToolCalls, with_tools
from seal.method.interface.wording import PromptWording
from seal.system.text import without_thoughts


def _package() -> ModuleType:
    from bfcl_eval.constants import default_prompts  # here: code that judges no benchmark task runs without the package

    return default_prompts


class BfclFormat(formats.Format):
    """A mode of the benchmark: it knows all tools, and announces those that were withheld."""

    def user(self, text: str) -> str:
        """Return a user's message."""
        return text

    def reveal(self, tools: Sequence[Document]) -> str:
        """Return the announcement of tools withheld until now: here the package's, with the tools as Python's repr."""
        return _package().DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING.format(functions=list(tools))

    def rendering_error(self, text: str) -> str | None:
        """Why the official handler cannot render the next prompt, and so fails the task; None if it can."""
        return None


_QWEN_OPENING = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_QWEN_CLOSING = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    'within <tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, '
    '"arguments": <args-json-object>}\n</tool_call>'
)
_LINES = ("<tool_call>\n", "\n</tool_call>")


class QwenFormat(BfclFormat):
    """Qwen's own tool template around the package's function documents, as the package's handler uses it."""

    name = "bfcl_qwen_fc"
    cue_wording = PromptWording(
        "Write each call as a block of three lines:\n<tool_call>\n"
        '{"name": "TOOL", "arguments": {"ARGUMENT": "VALUE"}}\n</tool_call>'
    )

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        return _QWEN_OPENING + "".join(_lines()[tool["name"]] for tool in tools) + _QWEN_CLOSING

    def parse(self, text: str, tools: Collection[str] = ()) -> Parsed:
        """Read the calls that the package's handler would run, and report those that it would drop.

        The handler skips blocks that are not JSON and gives up on the whole message when a block is JSON but not a
        call. Both cases add a refusal here, and so does a call without tags.
        """
        body = without_thoughts(text).lstrip("\n") if "</think>" in text else text
        advice = "Write a tool call between <tool_call> and </tool_call>, each tag on a line of its own."
        parsed = read_blocks(body, tool_documents().keys(), _qwen_call, _LINES, "Tool call {} is not {}.", advice)
        given_up = any(" is not a call: " in refusal for refusal in parsed.refusals)
        return replace(parsed, calls=()) if given_up else parsed

    def rendering_error(self, text: str) -> str | None:
        """Say why the handler, which writes every JSON block into the history, fails to write one; None if it does not.

        It also reads blocks in the thoughts, and it needs arguments and a name that is a string.
        """
        for index, block in enumerate(blocks(text, *_LINES)[0], 1):
            try:
                item = json.loads(block)
            except (ValueError, RecursionError):
                continue  # the handler drops blocks that are not JSON
            try:
                call = item.get("function", item)
                arguments = call["arguments"]
                written = call["name"] + (arguments if isinstance(arguments, str) else json.dumps(arguments))
                written.encode()  # a lone surrogate cannot be sent
            except (AttributeError, TypeError, KeyError, ValueError, RecursionError) as error:
                reason = f"{type(error).__name__}: {error}"
                return f"Tool call {index} cannot be written into the next prompt ({reason})."
        return None

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def _qwen_call(block: str) -> Call:
    try:
        item = json.loads(block)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"valid JSON: {error}") from None
    try:
        return call_of(item)
    except ValueError as error:
        raise ValueError(f"a call: {error}") from None


def _with_hint(document: Document) -> Document:
    """The document as the package shows it: its description says that the function is in Python syntax."""
    hint = " Note that the provided function is in Python 3 syntax."
    return {**document, "description": document["description"] + hint}


@cache
def _lines() -> Mapping[str, str]:
    """Every tool's document as one line of the system text, by the tool's name."""
    return {name: f"\n{json.dumps(_with_hint(document))}" for name, document in tool_documents().items()}


class CompactFormat(BfclFormat, formats.Compact):
    """Tool names only, compact JSON calls, clipped results: for policies with a small context."""

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        return " ".join(tool["name"] for tool in tools)

    def reveal(self, tools: Sequence[Document]) -> str:
        return "New tools: " + " ".join(tool["name"] for tool in tools)

    def parse(self, text: str, tools: Collection[str] = ()) -> Parsed:
        return read_blocks(text, tool_documents().keys())


class CompactArgumentsFormat(CompactFormat):
    """Tool names, then each tool with the names of its arguments; the rest as in `compact`."""

    name = "compact_arguments"

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        return f"{super().system(tools)}\n{_arguments(tools)}"

    def reveal(self, tools: Sequence[Document]) -> str:
        return f"{super().reveal(tools)}\n{_arguments(tools)}"


def _arguments(tools: Sequence[Document]) -> str:
    """ "Arguments: cp source destination; ls a?": required ones first, optional ones with a question mark."""
    return "Arguments: " + "; ".join(" ".join((tool["name"], *_names(tool))) for tool in tools)


def _names(tool: Document) -> list[str]:
    required = tool["parameters"].get("required", ())
    optional = [f"{name}?" for name in tool["parameters"].get("properties", {}) if name not in required]
    return [*required, *optional]


class ToolaceFormat(BfclFormat):
    """The benchmark's default prompt, with which ToolACE-2 is scored: calls as a Python list, stripped messages."""

    name = "toolace_official_prompt"
    cue_wording = PromptWording(
        "Write a message that calls tools as [TOOL(ARGUMENT='VALUE')] without any other text, several calls separated "
        "by commas inside the brackets, and True, False and None as in Python."
    )

    def system(self, tools: Sequence[Document], instructions: str = "") -> str:
        package = _package()
        style, python = package.PROMPT_STYLE_TEMPLATES["classic"], package.OUTPUT_FORMAT_MAPPING["python"]
        functions = json.dumps([_with_hint(tool) for tool in tools], indent=4)
        return package._PLAINTEXT_SYSTEM_PROMPT_TEMPLATE.format(
            persona=style["persona"],
            task=style["task"],
            tool_call_format=style["tool_call_no_tag"].format(output_format=python, param_types=""),
            multiturn_behavior=style["multiturn_behavior"],
            available_tools=style["available_tools"].format(format="json", functions=functions),
        ).strip()

    def parse(self, text: str, tools: Collection[str] = ()) -> Parsed:
        """Read the whole message as a list of calls, or as an answer."""
        try:
            return Parsed(tuple(read_calls(text)), (), "")
        except ValueError as error:
            unreadable = (f"The calls cannot be read: {error}.",)
            refusals = unreadable if looks_like_calls(text) else stray_call(text, tool_documents().keys())
            return Parsed((), refusals, text.strip())

    def user(self, text: str) -> str:
        return text.strip()

    def reveal(self, tools: Sequence[Document]) -> str:
        return super().reveal(tools).strip()

    def results(self, texts: Sequence[str]) -> list[dict[str, str]]:
        """Return one message with role ipython per result."""
        return [{"role": "ipython", "content": text.strip()} for text in texts]

    def render_call(self, name: str, arguments: Mapping[str, Any]) -> str:
        return f"[{write_call(name, arguments)}]"


class OpenaiFormat(ToolCalls, BfclFormat):
    """The package's chat-completions handler for models that call functions (`OpenAICompletionsHandler`)."""

    def definitions(self, tools: Sequence[Document]) -> list[dict[str, Any]]:
        return _converted([_with_hint(tool) for tool in tools])

    def reveal(self, tools: Sequence[Document]) -> str:
        """Return the package's announcement; the package adds no hint to withheld tools."""
        return with_tools(_package().DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC, _converted(tools))

    def parse(self, text: str, tools: Collection[str] = ()) -> Parsed:
        return super().parse(text, tool_documents().keys())


class NativeFormat(Native, OpenaiFormat):
    """The same tools in the policy's own template. Unlike the package's handler, runs good calls beside a bad one."""

    parse = Native.parse


def _converted(tools: Sequence[Document]) -> list[dict[str, Any]]:
    """The documents as the package's `convert_to_tool` writes them; its module imports parsers of other languages."""
    return [{"type": "function", "function": {**tool, "parameters": _property(tool["parameters"])}} for tool in tools]


def _property(node: Mapping[str, Any]) -> dict[str, Any]:
    from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI as TYPES

    found = {**node, "type": TYPES[node["type"]]}
    if node["type"] == "float":
        found |= {"format": "float", "description": f"{node['description']} This is a float type value."}
    if "properties" in node:
        found["properties"] = {name: _property(child) for name, child in node["properties"].items()}
    elif "items" in node:
        found["items"] = {**node["items"], "type": TYPES[node["items"]["type"]]}
    return found


_MODES = (QwenFormat(), CompactFormat(), CompactArgumentsFormat(), ToolaceFormat())
_ALSO: Mapping[str, BfclFormat] = {"toolace_fc": _MODES[3], MODE: OpenaiFormat(), NATIVE: NativeFormat()}
FORMATS: Mapping[str, BfclFormat] = {form.name: form for form in _MODES} | _ALSO
"""All modes by name, the default first; then the release's name of one, and those whose calls an API or agent reads."""


def format_names() -> tuple[str, ...]:
    """Return the modes that a policy can be trained in, the default first."""
    return tuple(form.name for form in _MODES)


def get_format(name: str) -> BfclFormat:
    return formats.get_format(name, FORMATS)
