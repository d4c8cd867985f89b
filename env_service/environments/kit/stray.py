"""Find calls that a message writes outside its format.

A policy that writes `{"name": ...}` without tags, in a code fence or after a sentence, or `cd(folder="x")` when JSON is
expected, tries to call a tool. The official handlers take such a message as an answer; the diagnosis must not (paper,
Table 5: "the action cannot be parsed"). Prose that mentions a tool, such as "I used `ls()`", is not a call.
"""

import ast
import json
import re
from collections.abc import Collection, Iterator
from typing import Any

_CANDIDATES = 16
"""The number of places in a message that are tried, which bounds the time for any text."""

_CANDIDATE_CHARACTERS = 20_000
_NAMES = ("name", "function", "tool", "tool_name", "function_name", "action")
_ARGUMENTS = ("arguments", "parameters", "args", "params", "input", "action_input", "tool_input", "kwargs")
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_OBJECT = re.compile(r"\{\s*[\"'](?:" + "|".join((*_NAMES, *_ARGUMENTS, "tool_calls", "type")) + r")[\"']\s*:")
_CALL = re.compile(r"(?<![\w.])([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_]\w*)*)\(")
_PART = re.compile(r"""(["'])(?:\\.?|(?!\1)[^\\])*(?:\1|\Z)|[()\[\]{}]""", re.DOTALL)
"""A bracket, or a quotation up to its closing quote or the end of the text, so that no search starts inside one."""
_CLOSING = {"(": ")", "{": "}", "[": "]"}
_BEFORE = re.compile(r"(?:^|\n)[ \t]*>?[ \t]*[`\[( ]*$|```\w*\s*\[?$|[\[(>]\s*$|\)\s*,\s*$")
_AFTER = re.compile(r"[`\]); \t]*(?:\n|$|```|</)|\s*,\s*[A-Za-z_][\w.]*\(")


def stray_call(text: str, tools: Collection[str]) -> tuple[str, ...]:
    """Return one refusal that names the first call written outside the format, or (); tools: all documented names."""
    body = _THOUGHT.sub("", text.replace("</think>", "\n")) if "think>" in text else text
    name = next((name for found in (_objects(body, tools), _python_calls(body, tools)) for name in found), None)
    return () if name is None else (f"A call of {name[:64]} is written outside the call format.",)


def _objects(text: str, tools: Collection[str]) -> Iterator[str]:
    for _, match in zip(range(_CANDIDATES), _OBJECT.finditer(text), strict=False):
        source = _balanced(text, match.start())
        if source is not None and (name := _called(literal(source), tools)) is not None:
            yield name


def literal(source: str) -> Any:
    """The value of a text that is JSON or a literal of Python; None if it is neither."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(source)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return None


def _called(item: Any, tools: Collection[str]) -> str | None:
    """The name that an object calls; None for an object that is not a call."""
    if not isinstance(item, dict):
        return None
    nested = item.get("tool_calls")
    if isinstance(nested, list) and nested:
        return _called(nested[0], tools)
    if isinstance(item.get("function"), dict):
        item = item["function"]
    name = next((item[key] for key in _NAMES if isinstance(item.get(key), str)), None)
    given = any(isinstance(item.get(key), dict | str) for key in _ARGUMENTS)
    if tools and name not in tools:  # an answer may hold any name next to an input
        given = str(item.get("arguments")).lstrip().startswith("{")
    return name if name and (given or (name in tools and len(item) == 1)) else None


def _python_calls(text: str, tools: Collection[str]) -> Iterator[str]:
    whole = text.strip(" \n\t`;")
    for _, match in zip(range(_CANDIDATES), _CALL.finditer(text), strict=False):
        source = _balanced(text, match.end() - 1)
        if source is None:
            continue
        end = match.end() - 1 + len(source)
        call, name = match[0][:-1] + source, match[1]
        alone = _BEFORE.search(text[max(0, match.start() - 80) : match.start()]) and _AFTER.match(text, end)
        known = any(part in tools for part in (name, *name.split(".")))
        if alone and (known or whole in (call, f"[{call}]")) and _is_call(call, known or not tools):
            yield name


def _is_call(source: str, known: bool) -> bool:
    try:
        node = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return isinstance(node, ast.Call) and (known or bool(node.keywords and not node.args))  # f(x) may be an answer


def _balanced(text: str, start: int) -> str | None:
    """The text from an opening bracket to the one that closes it; brackets in quotes do not count."""
    closing: list[str] = []
    for part in _PART.finditer(text, start, start + _CANDIDATE_CHARACTERS):
        if part[0] in _CLOSING:
            closing.append(_CLOSING[part[0]])
        elif part[0] in ")]}":
            if part[0] != closing.pop():
                return None
            if not closing:
                return text[start : part.end()]
    return None
