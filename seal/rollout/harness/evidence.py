"""What a text shows: a tool's document, a call, or words, whatever the form that an SDK gave them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any


def announced(tool: Mapping[str, Any], text: str) -> bool:
    """Whether a text holds a tool's document: its quoted name, its description, and the names of its arguments."""
    if not re.search(rf"[\"']{re.escape(tool['name'])}[\"']", text):
        return False
    words = letters(text)
    return all(letters(each) in words for each in (tool["description"], *tool["parameters"].get("properties", {})))


def holds(text: str, name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a text names a tool and all values of its arguments, as code or a format of the harness's own does."""
    known = letters(text)
    named = re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", text)
    return named is not None and all(letters(value) in known for value in _values(arguments))


def _values(value: Any) -> Iterator[str]:
    """The texts and numbers of a JSON value."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _values(each)
    elif not isinstance(value, bool) and value is not None:
        yield value if isinstance(value, str) else repr(value).removesuffix(".0")


def letters(text: str) -> str:
    """Letters and digits, the same in JSON and in Python's notation."""
    return re.sub(r"\\[nrt]|[\W_]", "", text).casefold()
