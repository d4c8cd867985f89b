"""Constraints on an argument that its document states only in prose.

No argument of the benchmark has an ``enum``: allowed values, formats, ranges and
units sit in the descriptions. This module lifts them, from public text only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Constraint:
    """kind is values, format, range or unit; text is how a cue states it ("one of a, b")."""

    kind: str
    text: str


def _items(text: str) -> list[str]:
    return [item.strip(" \"'`[].") for item in text.split(",") if item.strip(" \"'`[].")]


def _one_of(match: re.Match[str]) -> str:
    return "one of " + ", ".join(_items(match[1]))


def _slashed(match: re.Match[str]) -> str:
    return "one of " + ", ".join(match[1].split("/"))


def _quoted(match: re.Match[str]) -> str:
    return "one of " + ", ".join(re.findall(r"'(\w+)' for ", match[0]))


_PATTERNS: tuple[tuple[str, str, Callable[[re.Match[str]], str]], ...] = (
    ("values", r"\[Enum\]:?\s*([^\n]+)", _one_of),
    ("values", r"[Oo]ptions(?: are)?:\s*([^.\n]+)", _one_of),
    ("values", r"\(([A-Z]\w+(?:/[A-Z]\w+)+)\)", _slashed),
    ("values", r"'\w+' for \w+(?:, '\w+' for \w+)+", _quoted),
    ("format", r"(YYYY-MM-DDTHH:MM:SS|YYYY-MM-DD|MM/YYYY)", lambda m: f"format {m[1]}"),
    ("format", r"in the format of (street, city, state)", lambda m: f"format {m[1]}"),
    ("format", r"3 letter code", lambda m: "3-letter airport code"),
    ("format", r"[Tt]he zipcode of", lambda m: "a zipcode"),
    ("format", r"should start with (\S)", lambda m: f"starts with {m[1]}"),
    (
        "format",
        r"No path is allowed|[Nn]o file paths allowed|cannot be a path|not allow path",
        lambda m: "a bare name, no path",
    ),
    ("format", r"only change one folder level", lambda m: "one folder level at a time"),
    ("range", r"(?:from|between) (\d+)(?: \([^)]*\))? (?:to|and) (\d+)", lambda m: f"{m[1]} to {m[2]}"),
    ("range", r"multiple of (\d+)", lambda m: f"a multiple of {m[1]}"),
    ("unit", r"\bin (gallons|meters|miles|m/h|USD)\b", lambda m: f"in {m[1]}"),
    ("unit", r"amount of (gallon|liter)\b", lambda m: f"in {m[1]}s"),
    ("unit", r"in degree\. Default to be (celsius)", lambda m: f"in degrees, {m[1]} by default"),
)


def constraints(description: str) -> tuple[Constraint, ...]:
    """Every constraint found in the prose of one argument's description, in a fixed order."""
    found = []
    for kind, pattern, say in _PATTERNS:
        match = re.search(pattern, description)
        if match:
            found.append(Constraint(kind, say(match)))
    return tuple(found)


def argument_constraints(schema: Mapping[str, Any]) -> tuple[Constraint, ...]:
    """Constraints of one argument: its ``enum`` where it has one, else its prose."""
    if schema.get("enum"):
        return (Constraint("values", "one of " + ", ".join(map(str, schema["enum"]))),)
    return constraints(schema.get("description", ""))
