"""What a text shows: a tool's document, a call, or words, in whatever form an SDK gave them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any


def announced(tool: Mapping[str, Any], text: str) -> bool:
    """Whether a text contains a tool's document: its quoted name, its description, and the names of its arguments."""
    if not re.search(rf"[\"']{re.escape(tool['name'])}[\"']", text):
        return False
    known = words(text)
    return all(words(each) in known for each in (tool["description"], *(tool["parameters"].get("properties") or ())))


def holds(text: str, name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a text names a tool and all values of its arguments, as code or the harness's own format does.

    A name without values must be quoted, called or the end of a line: a sentence may name a tool too.
    """
    known, values = words(text), [*_values(arguments)]
    call = "" if values else r"(?:\s*\(|[\"'`>]|\s*$)"
    if not re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_]){call}", text, re.M):
        return False
    return all(words(each) in known if isinstance(each, str) else _number(each, text) for each in values)


def _values(value: Any) -> Iterator[str | float]:
    """The texts and numbers of a JSON value."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _values(each)
    elif not isinstance(value, bool) and value is not None:
        yield value


def _number(value: float, text: str) -> bool:
    written = re.escape(repr(value).removesuffix(".0"))
    return re.search(rf"(?<![\w.-]){written}(?:\.0+)?(?!\w|\.\d)", text) is not None


def words(text: str) -> str:
    """Words and numbers, each between blanks, the same in JSON and in Python's notation."""
    found = re.findall(r"[^\W_]+", re.sub(r"\\[nrt]", " ", text).casefold())
    return "".join(f" {each}" for each in found) + " "
