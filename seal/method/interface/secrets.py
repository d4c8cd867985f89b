"""The knowledge in a task's reference, in forms that do not depend on spelling.

Texts are compared after :func:`normal` (Unicode compatibility forms, case, invisible characters), numbers by value
(1,500 is 1.5e3). Values that are too common to mean anything on their own (true, 3, "on") are not secrets.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

_NUMBER = re.compile(r"(?<![\w.])(?:\d{1,3}(?:[,'_]\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d{1,3})?(?!\w)")
_CHARACTERS, _DIGITS = 4, 3
_CLAUSE_END = re.compile(r"[\n.;:!?]+")


def normal(text: str) -> str:
    """The text in one form: NFKC, case folded, invisible characters removed, runs of blanks as one."""
    composed = unicodedata.normalize("NFKC", text).casefold()
    visible = "".join(character for character in composed if unicodedata.category(character) != "Cf")
    return " ".join(visible.split())


def clauses(text: str) -> frozenset[str]:
    """The clauses of a text that have at least three words, as normal texts."""
    return frozenset(clause for each in _CLAUSE_END.split(text) if (clause := normal(each)).count(" ") >= 2)


def numbers(text: str) -> frozenset[Decimal]:
    """Every number of a normal text, without its sign."""
    return frozenset(_decimal(match.group()) for match in _NUMBER.finditer(text))


def scalars(value: Any, keys: bool = False) -> list[Any]:
    """Every text and number inside a value, also in objects; keys: also the keys of mappings, which are often names."""
    found: list[Any] = []
    waiting, entered = [value], set()
    while waiting:
        item = waiting.pop()
        if isinstance(item, str | int | float):
            found.append(item)
        elif id(item) not in entered:
            entered.add(id(item))
            if isinstance(item, Mapping):
                found += map(str, item) if keys else ()
                waiting += item.values()
            elif isinstance(item, list | tuple | set | frozenset):
                waiting += item
            elif hasattr(item, "__dict__"):
                waiting += vars(item).values()
    return found


@dataclass(frozen=True)
class Secrets:
    """words: normal texts (values, calls, keys of states). numbers: by value. Both say something on their own.

    tools: names of tools that have not been announced, as normal texts.
    """

    words: frozenset[str] = frozenset()
    numbers: frozenset[Decimal] = frozenset()
    tools: frozenset[str] = frozenset()


def reference_secrets(
    calls: Iterable[tuple[str, Mapping[str, Any]]],
    results: Iterable[str] = (),
    states: Iterable[Any] = (),
    tools: Iterable[str] = (),
) -> Secrets:
    """Return a reference's secrets: argument values, calls, results (whole and in parts), states with their keys.

    states: the simulators, or what they hold, before and after the reference ran. tools: the names of withheld ones.
    """
    values: list[Any] = []
    for name, arguments in calls:
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        values += [f"{name}({shown})", json.dumps({"name": name, "arguments": arguments}, default=str)]
        values += scalars(arguments)
    for result in results:
        values.append(result)
        try:
            values += scalars(json.loads(result))
        except ValueError:
            continue
    for state in states:
        values += scalars(state, keys=True)
    texts = {normal(value) for value in values if isinstance(value, str)}
    figures = {_decimal(str(value)) for value in values if not isinstance(value, str | bool)}
    figures |= {_decimal(text) for text in texts if _NUMBER.fullmatch(text)}
    return Secrets(
        words=frozenset(t for t in texts if sum(map(str.isalnum, t)) >= _CHARACTERS and not _NUMBER.fullmatch(t)),
        numbers=frozenset(filter(_has_digits, figures)),
        tools=frozenset(map(normal, tools)),
    )


def _has_digits(number: Decimal) -> bool:
    return sum(map(str.isdigit, format(number.normalize(), "f").lstrip("0."))) >= _DIGITS


def _decimal(text: str) -> Decimal:
    try:
        return abs(Decimal(re.sub(r"[,'_]", "", text)))
    except InvalidOperation:  # infinity and not-a-number have no digits
        return Decimal(0)
