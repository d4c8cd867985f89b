"""A part that stands for a longer text: the line that says what it is about, its beginning, its end."""

import re
from collections.abc import Sequence
from pathlib import Path

_COMMANDS = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*)?|[\x00-\x1f\x7f-\x9f]")
"""Escape sequences that colour, move or name, and the other control characters."""


def first_line(text: str, default: str = "") -> str:
    """The first line that is not blank, stripped; `default` if there is none."""
    return next(iter(_lines(text)), default)


def last_line(text: str, default: str = "") -> str:
    """The last line that is not blank, stripped: there outputs and tracebacks say what went wrong; else `default`."""
    return next(iter(reversed(_lines(text))), default)


def last_output(log: Path) -> str:
    """The last line of a process's log."""
    return last_line(log.read_text(encoding="utf-8", errors="replace"), "no output")


def one_line(text: str) -> str:
    """Another program's words as a part of a sentence: in one line, without characters that control a terminal."""
    return " ".join(_COMMANDS.sub(" ", text).split())


def clipped(text: str, characters: int) -> str:
    """The first `characters` of the text, marked as cut if it has more."""
    return text if len(text) <= characters else text[:characters] + "..."


def without_thoughts(text: str) -> str:
    """What a model's message says after its thoughts, which end at the last ``</think>``."""
    return text.rpartition("</think>")[2]


def enumeration(names: Sequence[object], most: int = 12) -> str:
    """The names with commas between them; of more than `most` the last ones are only counted."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
