"""Logs of one JSON object a line, read without losing sight of the bad lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class BadLine:
    """A line that could not be used: where it stands and what is wrong with it."""

    path: Path
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


@dataclass(frozen=True)
class Line:
    """One object of a log and where it stands (line counts from 1)."""

    path: Path
    line: int
    value: Mapping[str, Any]

    def bad(self, problem: str) -> BadLine:
        """The same place as a bad line."""
        return BadLine(self.path, self.line, problem)


def read_jsonl(path: Path | str) -> Iterator[Line | BadLine]:
    """Each line of a file as an object or as a bad line; empty lines are skipped.

    OSError when the file cannot be opened.
    """
    path = Path(path)
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            if not raw.strip():
                continue
            try:
                value = json.loads(raw)
            except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
                cut = "" if raw.endswith(b"\n") else " (the last line, cut short: the writer was interrupted)"
                yield BadLine(path, number, f"not valid JSON{cut}: {error}; remove or complete this line")
                continue
            if isinstance(value, dict):
                yield Line(path, number, value)
            else:
                yield BadLine(path, number, f"a {type(value).__name__} where an object is expected; remove this line")


def step_files(folder: Path | str) -> list[tuple[int, Path]]:
    """The files ``<step>.jsonl`` of a folder with their step, ascending; empty when there is none."""
    files = [(int(path.stem), path) for path in Path(folder).glob("*.jsonl") if path.stem.isdigit()]
    return sorted(files)
