"""Searches in texts for values of arguments, names of tools that no user would know, sentences of the benchmark."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from env_service.environments.bfcl.catalog import Document, load_tasks

COPIED_WORDS = 8
"""Words in a row that are not a coincidence; a shorter message counts as copied only if it is the same as a whole."""

_SHORT = 4
"""Texts below this length must occur as separate words."""
_SHELL = frozenset(["ls", "cd", "mkdir", "rm", "rmdir", "cp", "mv", "wc", "du", "pwd", "grep", "cat", "diff"])
"""Names of tools that are in lower case but are not words of a request."""
_CALL_SYNTAX = re.compile(r"[{,]\s*[\"']\w+[\"']\s*:|</?tool_call>|```")
_WORD = re.compile(r"\w+")


def leaves(value: Any) -> Iterator[Any]:
    """The texts, numbers and truth values in an argument."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def is_amount(leaf: Any) -> bool:
    """Return whether a leaf is a number that a float can hold; longer ones are compared digit by digit."""
    return isinstance(leaf, int | float) and abs(leaf) <= sys.float_info.max


def normal(value: Any) -> str:
    """A leaf as text, so that equal values have equal texts: capitals and the point of an integer do not matter."""
    if isinstance(value, bool) or value is None:
        return repr(value)
    if is_amount(value):
        return f"{float(value):.10g}"
    return str(value).strip().casefold()


def says(text: str, value: Any) -> bool:
    """Return whether a text says every leaf of a value; truth values always count, since texts only imply them."""
    return all(isinstance(leaf, bool) or leaf is None or _pattern(leaf).search(text) for leaf in leaves(value))


def without(text: str, values: Iterable[Any]) -> str:
    """The text with a blank in place of every leaf of the values, the longest leaves first."""
    texts = {str(leaf): leaf for value in values for leaf in leaves(value) if not isinstance(leaf, bool) and leaf != ""}
    for _, leaf in sorted(texts.items(), key=lambda item: -len(item[0])):
        text = _pattern(leaf).sub(" ", text)
    return text


def _pattern(leaf: Any) -> re.Pattern[str]:
    if is_amount(leaf):
        forms = {str(leaf), f"{leaf:g}", f"{leaf:,}", f"{leaf:.2f}", f"{leaf:,.2f}"}
        forms |= {str(int(leaf)), f"{int(leaf):,}"} if float(leaf).is_integer() else set()
        longest_first = sorted(map(re.escape, forms), key=len, reverse=True)
        return re.compile(rf"(?<![\w.])(?:{'|'.join(longest_first)})(?![\w]|[.,]\d)")
    text = re.escape(str(leaf).strip()).replace(r"\ ", r"\s+")
    return re.compile(rf"(?<!\w){text}(?!\w)" if len(str(leaf)) < _SHORT else text, re.IGNORECASE)


def pasted(message: str, tools: Iterable[Document], values: Sequence[Any]) -> str | None:
    """Return the part of a call that a message copies (a tool or argument name, a call, JSON), None without one.

    values: values that the message may say, whatever they look like.
    """
    text = without(message, values)
    if syntax := _CALL_SYNTAX.search(text):
        return syntax[0]
    for tool in tools:
        if _is_named(text, tool["name"], r"\("):
            return tool["name"]
        for argument in tool["parameters"]["properties"]:
            if _is_named(text, argument, "="):
                return argument
    return None


def _is_named(text: str, name: str, follows: str) -> bool:
    """Return whether a text has a name before `follows`, or anywhere if the name is not a plain English word."""
    word = rf"(?<!\w){re.escape(name)}"
    technical = "_" in name or name in _SHELL or any(letter.isupper() for letter in name[1:])
    called = re.search(rf"{word}\s*{follows}", text)
    return bool(called or (technical and re.search(rf"{word}(?!\w)", text, re.IGNORECASE)))


def is_copied(users: Iterable[str | None]) -> bool:
    """Return whether a message copies one of the benchmark's (8 words in a row)."""
    return any(run in _benchmark() for user in users if user for run in _runs(user))


def similarity(one: Iterable[str], other: Iterable[str]) -> float:
    """The share of words that two dialogues have in common, from 0 to 1."""
    a, b = ({word for text in texts for word in _words(text)} for texts in (one, other))
    return len(a & b) / len(a | b) if a | b else 1.0


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = _words(text)
    for start in range(max(1, len(words) - COPIED_WORDS + 1)):
        yield tuple(words[start : start + COPIED_WORDS])


@cache
def _benchmark() -> frozenset[tuple[str, ...]]:
    return frozenset(run for task in load_tasks().values() for user in task.users if user for run in _runs(user))
