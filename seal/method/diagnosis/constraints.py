"""Constraints on an argument's values.

No argument of the benchmark has an ``enum``: allowed values, formats, ranges and units are in the descriptions. This
module extracts them, from public text only. Values, ranges and multiples are precise enough to judge a call by (every
reference call of the benchmark keeps to them); formats and units are only shown. The patterns are the benchmark's: in
another document "(DD/MM/YYYY)" is not a list of values, so only its schema says what is allowed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from seal.method.diagnosis.schema import written


@dataclass(frozen=True)
class Constraint:
    """text: how a cue states it. schema: the JSON-schema keywords that judge it; empty when it is only shown."""

    text: str
    schema: Mapping[str, Any] = field(default_factory=dict)


def _values(values: list[str]) -> Constraint:
    return Constraint("one of " + ", ".join(values), {"enum": values})


def _listed(match: re.Match[str]) -> Constraint:
    return _values([value for item in match[1].split(",") if (value := item.strip(" \"'`[]."))])


def _range(match: re.Match[str]) -> Constraint:
    return Constraint(f"{match[1]} to {match[2]}", {"minimum": int(match[1]), "maximum": int(match[2])})


def _shown(text: str) -> Callable[[re.Match[str]], Constraint]:
    return lambda match: Constraint(match.expand(text))


_PATTERNS: tuple[tuple[str, Callable[[re.Match[str]], Constraint]], ...] = (
    (r"\[Enum\]:?\s*([^\n]+)", _listed),
    (r"[Oo]ptions(?: are)?:\s*([^.\n]+)", _listed),
    (r"\(([A-Z]\w+(?:/[A-Z]\w+)+)\)", lambda match: _values(match[1].split("/"))),
    (r"'\w+' for \w+(?:, '\w+' for \w+)+", lambda match: _values(re.findall(r"'(\w+)' for ", match[0]))),
    (r"(?:from|between) (\d+)(?: \([^)]*\))? (?:to|and) (\d+)", _range),
    (r"multiple of (\d+)", lambda match: Constraint(f"a multiple of {match[1]}", {"multipleOf": int(match[1])})),
    (r"(YYYY-MM-DDTHH:MM:SS|YYYY-MM-DD|MM/YYYY)", _shown(r"format \1")),
    (r"in the format of (street, city, state)", _shown(r"format \1")),
    (r"3 letter code", _shown("3-letter airport code")),
    (r"[Tt]he zipcode of", _shown("a zipcode")),
    (r"should start with (\S)", _shown(r"starts with \1")),
    (r"No path is allowed|[Nn]o file paths allowed|cannot be a path|not allow path", _shown("a bare name, no path")),
    (r"only change one folder level", _shown("one folder level at a time")),
    (r"\bin (gallons|meters|miles|m/h|USD)\b", _shown(r"in \1")),
    (r"amount of (gallon|liter)\b", _shown(r"in \1s")),
    (r"in degree\. Default to be (celsius)", _shown(r"in degrees, \1 by default")),
)


def constraints(node: Mapping[str, Any], benchmark: bool) -> tuple[str, ...]:
    """A cue's constraints on an argument's values: from the prose of a benchmark document, else from the schema."""
    if benchmark:
        return tuple(constraint.text for constraint in prose(node))
    values = node.get("enum")
    return (_values(list(map(written, values))).text,) if isinstance(values, list) and values else ()


def prose(node: Mapping[str, Any]) -> tuple[Constraint, ...]:
    """The constraints that the description of a benchmark argument states."""
    return _of_prose(node.get("description", ""))


@lru_cache(maxsize=4096)
def _of_prose(description: str) -> tuple[Constraint, ...]:
    found: list[Constraint] = []
    for pattern, read in _PATTERNS:
        match = re.search(pattern, description)
        if match:
            constraint = read(match)
            if "enum" not in constraint.schema or not any("enum" in other.schema for other in found):
                found.append(constraint)
    return tuple(found)
