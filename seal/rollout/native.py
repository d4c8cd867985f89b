"""The model's own tool format: an episode as its chat template shows it, and its sampled messages as verl reads them.

The service exchanges text in the format `native`, with tools, calls and results as JSON in it. Here that text becomes
messages with tools, and a sampled message that text. What looks like a call and cannot be read is recorded as unread.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from verl.experimental.agent_loop import tool_parser
from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser

from env_service.environments.kit.calls import call_of
from env_service.environments.kit.stray import literal
from env_service.environments.kit.tool_calls import UNREAD, entry, read_message, split_cues, split_tools, write_message
from seal.method.diagnosis.schema import judges
from seal.method.interface.schema_cue import arguments_of
from seal.system.text import without_thoughts

logging.getLogger(tool_parser.__file__).setLevel(logging.CRITICAL)  # what verl cannot read is unread in the record


class Marks(NamedTuple):
    """How a format marks calls: around each of them, and around all of a message; tagged: values are not JSON."""

    opening: str
    closing: str
    before: str = ""
    after: str = ""
    tagged: bool = False


_DSML = "\uff5cDSML\uff5c"
PARSERS: Mapping[str, Marks] = {
    "hermes": Marks("<tool_call>", "</tool_call>"),
    "gpt-oss": Marks(" to=functions.", "<|call|>", "<|start|>assistant<|channel|>commentary"),
    "qwen3_coder": Marks("<function=", "</function>", "<tool_call>", "</tool_call>", True),
    "glm": Marks("<tool_call>", "</tool_call>", tagged=True),
    "seed": Marks("<function=", "</function>", "<seed:tool_call>", "</seed:tool_call>", True),
    "minimax": Marks("<invoke name=", "</invoke>", "<minimax:tool_call>", "</minimax:tool_call>", True),
    "kimi": Marks(
        "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
    ),
    "deepseek_v4": Marks(
        f"<{_DSML}invoke name=", f"</{_DSML}invoke>", f"<{_DSML}tool_calls>", f"</{_DSML}tool_calls>", True
    ),
    "gemma4": Marks("<|tool_call>", "<tool_call|>"),
}
"""verl's parsers. A message is read call by call, so that a bad call does not affect the others."""

_TAGGED = re.compile(
    rf"(?:<(?:{_DSML})?parameter(?:(=)| name=\")|<arg_key>)([^>\"<\n]+)\"?(?: string=\"(\w+)\")?"
    rf"(?:</arg_key>\s*<arg_value>|>)(?(1)\n?)(.*?)(?(1)\n?)(?:</(?:{_DSML})?parameter>|</arg_value>)",
    re.DOTALL,  # around a value in <parameter=NAME>, one line break on each side is the template's
)
_GEMMA = re.compile(r'<\|"\|>(.*?)<\|"\|>|(?<!\w)(?!\d|(?:true|false|null)\s*[]},])([\w$@][^][{},:]*)', re.DOTALL)
_ANALYSIS = re.compile(r"(?:<\|start\|>assistant)?<\|channel\|>analysis<\|message\|>(.*?)(?:<\|end\|>|\Z)", re.DOTALL)
_THINK = re.compile(r"(<seed:think>|<\|channel>thought)|</seed:think>|<channel\|>")
_HEADER = re.compile(r"(?:<\|start\|>assistant)?<\|channel\|>[^<]*(?:<\|message\|>)?|<\|(?:start\|>assistant|end\|>)")
_RECIPIENT = re.compile(r"^([^\s<{]+)[^{]*?<\|message\|>")
_KIMI = re.compile(r"^(?:functions\.)?(.+?)(?::\d+)?$")


class _Text:
    """A tokenizer for verl's parsers that decodes to a text: they must not read thoughts, nor need a padding token."""

    pad_token = ""

    def __init__(self, tokenizer: Any, text: str = ""):
        self.convert_tokens_to_ids, self._text = tokenizer.convert_tokens_to_ids, text

    def decode(self, *_: Any, **__: Any) -> str:
        return self._text


class NativeFormat:
    """The tool format of a model; parser: the name of verl's parser, a key of PARSERS."""

    def __init__(self, parser: str, tokenizer: Any):
        self._name, self._marks, self._tokenizer = parser, PARSERS[parser], tokenizer
        closing = [self._marks.closing] if parser == "gpt-oss" else []
        own = ToolParser.get_tool_parser(parser, _Text(tokenizer)).stop_token_ids
        self.stops = frozenset([*own, *map(tokenizer.convert_tokens_to_ids, closing)]) - {tokenizer.unk_token_id, None}
        """The tokens, beside eos, that end a message with calls."""

    async def read(self, text: str, stop: str, tools: Sequence[Mapping[str, Any]]) -> str:
        """A sampled message as the service reads it.

        stop: the stop token at its end, "" without one. tools: entries of a request's `tools`; values get their types.
        """
        marks, harmony = self._marks, self._name == "gpt-oss"
        if stop != marks.closing:
            text = text.removesuffix(stop)
        text = _ANALYSIS.sub("<think>\n\\1\n</think>\n\n", text)
        text = _THINK.sub(lambda mark: "<think>" if mark[1] else "</think>", text)
        body = without_thoughts(text)
        if body.lstrip().startswith("<think>"):
            return write_message(text, [{UNREAD: "its thoughts do not end"}] if marks.opening in body else [])
        first, *pieces = body.split(marks.opening)
        calls, said, stray = [], [first], marks.closing in first
        for number, piece in enumerate(pieces):
            inside, closed, after = piece.partition(marks.closing)
            call = await self._call(inside, number, tools) if closed else None
            calls += [call] if call is not None else []
            said += [after] if call is not None else [f"{marks.opening}{inside}{closed}", after]
            stray = stray or marks.closing in after
        around = [mark for mark in (marks.before, marks.after) if mark and not harmony]
        stray = stray or (not pieces and any(mark in body for mark in around))
        for mark in around if calls else ():
            said = [part.replace(mark, "") for part in said]
        content = text[: len(text) - len(body)] + "\n".join(filter(None, map(str.strip, said)))
        unread = {UNREAD: f"it is not in the format {self._name}"}
        return write_message(
            _HEADER.sub("", content) if harmony else content,
            [*calls, *[unread] * (len(pieces) - len(calls) + stray)],
        )

    async def _call(self, inside: str, number: int, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """The text between the marks of a call as an entry of `tool_calls`, None if it is not a call."""
        marks, inside = self._marks, _RECIPIENT.sub(r"\1 <|constrain|>json<|message|>", inside)
        plain = re.sub(r"^call:[^\s{]+(?={)", "call:_", inside)  # verl reads no dash in a name of Gemma's
        whole = f"{marks.before}{marks.opening}{plain}{marks.closing}{marks.after}"
        _, found = await ToolParser.get_tool_parser(self._name, _Text(self._tokenizer, whole)).extract_tool_calls([])
        with suppress(IndexError, ValueError, RecursionError):
            return entry(*self._meant(found[0], inside, tools), found[0].tool_call_id or f"call_{number}")
        return None

    def _meant(
        self, found: FunctionCall, inside: str, tools: Sequence[Mapping[str, Any]]
    ) -> tuple[str, Mapping[str, Any]]:
        """A call as it was written: verl reads numbers where text is asked for, and nothing if the JSON is broken."""
        if self._name == "kimi":
            found.name, found.arguments = _KIMI.match(found.name)[1], inside.partition("_argument_begin|>")[2]
        if self._name == "gemma4":  # verl reads no list, no object and no text with a line break
            found.name, brace, given = inside.removeprefix("call:").partition("{")
            found.arguments = _GEMMA.sub(lambda part: json.dumps(part[1] or part[2] or ""), brace + given)
        name, arguments = call_of({"name": found.name, "arguments": json.loads(found.arguments)})
        if self._marks.tagged:
            if _TAGGED.sub("", inside).strip('">\n ') != name or name.split() != [name]:
                raise ValueError("there is text between its arguments")
            known = next((each["function"] for each in tools if each["function"]["name"] == name), {})
            whole = known.get("parameters") if judges(known.get("parameters")) else {}
            kinds = {key: [*_types(schema, whole)] for key, schema in arguments_of(whole).items()}
            arguments = {
                key.strip(): _value(raw, {"true": ["string"], "false": []}.get(flag, kinds.get(key.strip(), [])))
                for _, key, flag, raw in _TAGGED.findall(inside)
            }
        return name, arguments


def _types(schema: Any, whole: Mapping[str, Any], depth: int = 5) -> Iterator[str]:
    """The types that a part of a valid schema names: itself, by its values, in a choice, or where it refers to."""
    if not isinstance(schema, Mapping) or not depth:
        return
    schema = {key: value for key, value in schema.items() if value is not None or key == "const"}  # as in a table's row
    kind, values = schema.get("type", ()), schema.get("enum", [schema["const"]] if "const" in schema else ())
    yield from (kind,) if isinstance(kind, str) else kind
    yield from ("null" if each is None else "string" for each in values if each is None or isinstance(each, str))
    target: Any = whole if "$ref" in schema else None
    for name in schema.get("$ref", "").split("/")[1:]:
        target = target.get(name) if isinstance(target, Mapping) else None
    for part in (target, *(part for rule in ("anyOf", "oneOf", "allOf") for part in schema.get(rule, ()))):
        yield from _types(part, whole, depth - 1)


def _value(raw: str, kinds: Sequence[str]) -> Any:
    """A tagged value: the text itself if its type is a string, else the JSON or Python value if it is one."""
    if "string" in kinds:
        return None if raw.strip() == "null" and "null" in kinds else raw
    value = literal(raw.strip())
    with suppress(TypeError, ValueError, RecursionError):  # of a set, which JSON lacks
        json.dumps(value)
        return raw if value is None and raw.strip() not in ("null", "None") else value
    return raw


class Prompt(NamedTuple):
    """An episode for a chat template: its messages, the tools of its system text, and those announced later.

    The latter stay in the text of their message: a template shows tools only at the beginning, and what was sampled
    after it must not move.
    """

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    announced: list[dict[str, Any]]


def request(dialogue: Sequence[Mapping[str, str]]) -> Prompt:
    """The messages of an episode; an answer to what was not a call of the format becomes a user message."""
    first, *rest = dialogue if dialogue[0]["role"] == "system" else ({"content": ""}, *dialogue)
    shown, cues = split_cues(first["content"])
    text, tools = split_tools(shown)
    cues, tools = noted(cues, tools)
    system = "\n\n".join(filter(None, (text, cues)))
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    unanswered: list[dict[str, Any]] = []
    announced: list[dict[str, Any]] = []
    for message in rest:
        role, text = message["role"], message["content"]
        if role == "assistant":
            content, entries = read_message(text)
            unanswered = [each for each in entries if UNREAD not in each]
            made = [(each, each["function"]) for each in unanswered]  # every template can write an object
            calls = [{**each, "function": {**do, "arguments": json.loads(do["arguments"])}} for each, do in made]
            messages.append({"role": role, "content": content} | ({"tool_calls": calls} if calls else {}))
        elif role == "tool" and unanswered:
            call = unanswered.pop(0)
            messages.append(
                {"role": role, "tool_call_id": call["id"], "name": call["function"]["name"], "content": text}
            )
        else:
            unanswered = []
            messages.append({"role": "user" if role == "tool" else role, "content": text})
            with suppress(ValueError):  # a user may write a line that only looks like tools
                announced += split_tools(split_cues(text)[0])[1]
    return Prompt(messages, tools, announced)


def noted(cues: str, tools: Sequence[Mapping[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """Move schema cues into the descriptions of the tools that they are about; return the other cues, and the tools."""
    functions = {tool["function"]["name"]: dict(tool["function"]) for tool in tools}
    rest = []
    for line in cues.split("\n"):
        name, _, note = line.removeprefix("- ").partition(": ")
        if line.startswith("- ") and name in functions:
            functions[name]["description"] += f"\nArguments: {note}"
        else:
            rest.append(line)
    return "\n".join(rest), [{**tool, "function": functions[tool["function"]["name"]]} for tool in tools]
