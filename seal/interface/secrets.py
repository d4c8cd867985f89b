"""What a task's reference knows, in forms that do not depend on how it is written.

Texts are compared after :func:`normal` (Unicode compatibility forms, case, invisible
characters), numbers by value (1,500 is 1.5e3), dates by day. A value that is too common to
mean anything on its own (true, 3, "on") counts together with the key that holds it.
"""

from __future__ import annotations

import calendar
import datetime
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

_NUMBER = re.compile(r"(?<![\w.])(?:\d{1,3}(?:[,'_]\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d{1,3})?(?!\w)")
_MONTHS = {name.casefold(): month for month, name in enumerate(calendar.month_name) if name}
_MONTHS |= {name.casefold(): month for month, name in enumerate(calendar.month_abbr) if name}
_MONTH = "(" + "|".join(sorted(_MONTHS, key=len, reverse=True)) + r")\.?"
_DATES = (
    (re.compile(r"(?<!\d)(\d{4})[-/.]?(\d{2})[-/.]?(\d{2})(?!\d)"), ("y", "m", "d")),
    (re.compile(r"(?<!\d)(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})(?!\d)"), ("m", "d", "y")),
    (re.compile(r"(?<!\d)(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})(?!\d)"), ("d", "m", "y")),
    (re.compile(_MONTH + r" (\d{1,2})(?:st|nd|rd|th)?,? (\d{4})"), ("m", "d", "y")),
    (re.compile(r"(\d{1,2})(?:st|nd|rd|th)?(?: of)? " + _MONTH + r",? (\d{4})"), ("d", "m", "y")),
)
_CHARACTERS, _DIGITS = 4, 3


def normal(text: str) -> str:
    """The text in one form: NFKC, case folded, invisible characters removed, runs of blanks as one."""
    composed = unicodedata.normalize("NFKC", text).casefold()
    visible = "".join(character for character in composed if unicodedata.category(character) != "Cf")
    return " ".join(visible.split())


def numbers(text: str) -> frozenset[Decimal]:
    """Every number of a normal text, without its sign."""
    return frozenset(_decimal(match.group()) for match in _NUMBER.finditer(text))


def dates(text: str) -> frozenset[datetime.date]:
    """Every day that a normal text can mean; 01/02/2024 means two."""
    found = set()
    for pattern, order in _DATES:
        for match in pattern.finditer(text):
            part = dict(zip(order, match.groups(), strict=True))
            month = _MONTHS.get(part["m"]) or int(part["m"])
            try:
                found.add(datetime.date(int(part["y"]), month, int(part["d"])))
            except ValueError:
                continue
    return frozenset(found)


def is_specific(value: str | Decimal) -> bool:
    """Whether a value says something on its own: four letters or digits, or three digits of a number."""
    if isinstance(value, Decimal):
        return sum(map(str.isdigit, format(value.normalize(), "f").lstrip("0."))) >= _DIGITS
    return sum(map(str.isalnum, value)) >= _CHARACTERS


def spoken(value: Any) -> list[str]:
    """Every key and scalar inside a value, as text."""
    return [*_keys(value), *(str(item) for _, item in _leaves("", value))]


@dataclass(frozen=True)
class Secrets:
    """words: normal texts (values, calls, keys of states). numbers and dates: by value.

    pairs: (key, value) of booleans and of values that are not specific, as normal texts.
    tools: names of tools that have not been announced, as normal texts.
    """

    words: frozenset[str] = frozenset()
    numbers: frozenset[Decimal] = frozenset()
    dates: frozenset[datetime.date] = frozenset()
    pairs: frozenset[tuple[str, str]] = frozenset()
    tools: frozenset[str] = frozenset()


def reference_secrets(
    calls: Iterable[tuple[str, Mapping[str, Any]]],
    results: Iterable[str] = (),
    states: Iterable[Any] = (),
    tools: Iterable[str] = (),
) -> Secrets:
    """What a reference knows: argument values, calls, results (whole and in parts), states with their keys.

    ``states`` are the simulators, or what they hold, before and after the reference ran;
    ``tools`` are the names of tools that are withheld until later.
    """
    held: list[tuple[str, Any]] = []
    texts: set[str] = set()
    for name, arguments in calls:
        held += _leaves("", arguments)
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        texts |= {f"{name}({shown})", json.dumps({"name": name, "arguments": arguments}, default=str)}
    for result in results:
        held += _leaves("", result)
        try:
            held += _leaves("", json.loads(result))
        except ValueError:
            continue
    for state in states:
        held += _leaves("", state)
        held += (("", key) for key in _keys(state))
    texts |= {value for _, value in held if isinstance(value, str)}
    words = frozenset(filter(None, map(normal, texts)))
    values = {_decimal(str(value)) for _, value in held if _is_number(value)}
    values |= {_decimal(word) for word in words if _NUMBER.fullmatch(word)}
    return Secrets(
        words=frozenset(word for word in words if any(map(str.isalnum, word)) and not _NUMBER.fullmatch(word)),
        numbers=frozenset(values),
        dates=frozenset(day for word in words for day in dates(word)),
        pairs=frozenset((normal(key), _common(value)) for key, value in held if key and _common(value)),
        tools=frozenset(map(normal, tools)),
    )


def _common(value: Any) -> str:
    """The normal text of a value that means nothing without its key, else ""."""
    if isinstance(value, bool):
        return normal(str(value))
    if _is_number(value):
        number = _decimal(str(value))
        return "" if is_specific(number) else format(number.normalize(), "f")
    text = normal(value) if isinstance(value, str) else ""
    return "" if is_specific(text) else text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _decimal(text: str) -> Decimal:
    try:
        return abs(Decimal(re.sub(r"[,'_]", "", text)))
    except InvalidOperation:  # infinity and not-a-number have no digits to tell
        return Decimal(0)


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from (("", item) for item in value)
    elif hasattr(value, "__dict__"):
        yield from vars(value).items()


def _leaves(key: str, value: Any) -> list[tuple[str, Any]]:
    """Every scalar inside a value with the key that holds it; looks into objects, each object once."""
    found, waiting, entered = [], [(key, value)], set()
    while waiting:
        key, item = waiting.pop()
        if isinstance(item, str | int | float):
            found.append((key, item))
        elif id(item) not in entered:
            entered.add(id(item))
            waiting += ((inner or key, child) for inner, child in _children(item))
    return found


def _keys(state: Any) -> list[str]:
    """Keys of every mapping inside a state: stock symbols, user names, ids. Names of attributes are not data."""
    found, waiting, entered = [], [state], set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, str | int | float) or id(item) in entered:
            continue
        entered.add(id(item))
        found += map(str, item) if isinstance(item, Mapping) else ()
        waiting += (child for _, child in _children(item))
    return found
