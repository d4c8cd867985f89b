"""What stands for a longer text: the line that says what it is about, its beginning, its end, all but its secrets."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_COMMANDS = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*)?|[\x00-\x1f\x7f-\x9f]")
"""Escape sequences that colour, move or name, and the other control characters."""
HIDDEN = "(left out)"
_WORDS = r"(?i:API[_-]?KEY|ACCESS_KEY|TOKEN|PAT|SECRET|PASSWORD|PASSWD|CREDENTIALS?)"
_SECRET = re.compile(rf"(^|_)({_WORDS}|KEY)$")  # a bare KEY only in capitals: data.prompt_key names a column
_ASSIGNED = re.compile(rf"\b(\w*(?:\b|_)(?:{_WORDS}|KEY)=)[^&\s]+")
_USER_INFO = re.compile(r"(\w://)[^/@\s]+@")
_OPTION = re.compile(rf"--?([\w-]*[-_])?{_WORDS}")  # of a command: its value is the next word


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


def without_secrets(value: Any) -> Any:
    """A configuration without what no one else may read."""
    if isinstance(value, Mapping):
        return {key: HIDDEN if _SECRET.search(str(key)) else without_secrets(item) for key, item in value.items()}
    if isinstance(value, list):
        pairs = zip(["", *value], value, strict=False)
        return [HIDDEN if _OPTION.fullmatch(str(before)) else without_secrets(item) for before, item in pairs]
    return _ASSIGNED.sub(rf"\1{HIDDEN}", _USER_INFO.sub(r"\1", value)) if isinstance(value, str) else value


def enumeration(names: Sequence[object], most: int = 12) -> str:
    """The names with commas between them; of more than `most` the last ones are only counted."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
