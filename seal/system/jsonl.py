"""Logs with one JSON object per line, read so that no bad line goes unnoticed."""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from pydantic import ValidationError

Record = TypeVar("Record")
PACKING = (gzip.BadGzipFile, EOFError, zlib.error)  # of a compressed file that is cut short or spoilt


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be used: its place, and what is wrong with it."""

    path: Path
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


@dataclass(frozen=True)
class Line:
    """One object of a log and its place (lines count from 1)."""

    path: Path
    line: int
    value: Mapping[str, Any]

    def bad(self, problem: str) -> BadLine:
        return BadLine(self.path, self.line, problem.encode("utf-8", "replace").decode())  # as a terminal can show it


def opened(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked if it is compressed."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def read_jsonl(path: Path | str) -> Iterator[Line | BadLine]:
    """Each line of a file as an object or a bad line, blank ones skipped, and a bad one if it cannot be unpacked."""
    path, number = Path(path), 0
    try:
        with opened(path) as stream:
            for number, raw in enumerate(stream, start=1):
                if raw.strip():
                    yield _line(path, number, raw)
    except PACKING as error:
        yield BadLine(path, number + 1, f"cannot be unpacked: {error}; restore this file")


def _line(path: Path, number: int, raw: bytes) -> Line | BadLine:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        cut = "" if raw.endswith(b"\n") else " (the last line, cut short: the writer was interrupted)"
        return BadLine(path, number, f"not valid JSON{cut}: {flaw(error)}; remove or complete this line")
    if isinstance(value, dict):
        return Line(path, number, value)
    return BadLine(path, number, f"a {type(value).__name__} where an object is expected; remove this line")


def flaw(error: ValueError | RecursionError) -> str:
    """What keeps `json.loads` from reading a text, without Python's words on its own limits."""
    if isinstance(error, RecursionError):
        return "its values are nested too deeply"
    known = isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
    return str(error) if known else "it holds a number of more digits than Python reads"


def read_records(
    path: Path | str, parse: Callable[[Mapping[str, Any]], Record]
) -> tuple[tuple[Record, ...], tuple[BadLine, ...]]:
    """Each line of a file as what `parse` makes of its object, and the bad lines."""
    return parse_lines(read_jsonl(path), lambda line: parse(line.value))


def parse_lines(
    lines: Iterable[Line | BadLine], parse: Callable[[Line], Record]
) -> tuple[tuple[Record, ...], tuple[BadLine, ...]]:
    """The parsed records and the bad lines: no objects, or `parse` raised ValueError or RecursionError."""
    records: list[Record] = []
    bad: list[BadLine] = []
    for line in lines:
        if isinstance(line, BadLine):
            bad.append(line)
            continue
        try:
            records.append(parse(line))
        except (ValueError, RecursionError) as error:
            said = flaw(error) if isinstance(error, RecursionError) else str(error)
            bad.append(line.bad(_explained(error) if isinstance(error, ValidationError) else said))
    return tuple(records), tuple(bad)


def step_files(folder: Path | str) -> list[tuple[int, Path]]:
    """The files ``<step>.jsonl`` of a folder with their step, ascending; empty if there are none."""
    return sorted((int(path.stem), path) for path in Path(folder).glob("*.jsonl") if path.stem.isdigit())


def _explained(error: ValidationError) -> str:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if not re.search(r"\[|^(str|dict|list|int|float)$", str(part)))
    if first["type"] == "value_error":
        return f"{field}: {first['ctx']['error']}" if field else str(first["ctx"]["error"])
    if first["type"] == "missing":
        return f"has no {field}"
    expected = re.sub("^Input should be (.*)$", r"\1 is expected", first["msg"])
    return f"{field} is {first['input']!r:.80}: {expected[0].lower()}{expected[1:]}"
