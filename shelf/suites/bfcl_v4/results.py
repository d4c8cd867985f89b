"""The official tool's files: what it generated, what it scored, and which entries are not answers at all.

The tool writes "Error during inference" as the answer of an item whose generation raised,
and scores it as wrong. Two kinds of such errors are the model's: a dialogue that exceeds its
context, and a call that the tool's handler cannot render into the next prompt. All others
are technical.
"""

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seal.system.text import last_line
from shelf.suites.bfcl_v4.categories import OFFICIAL_COLUMNS

RESULTS = "BFCL_v4_*_result.json"
_ERROR = "Error during inference"
_HANDLER = "model_handler"
_RENDERING = "_format_prompt"
_PROTOCOL = frozenset({"AttributeError", "IndexError", "JSONDecodeError", "KeyError", "TypeError"})
"""Exceptions that are raised when an endpoint answers something other than a completion."""

_ID = re.compile(rb'^\{"id": "([^"]+)"')


class Entry(NamedTuple):
    """A line of a result file, and the file's path below the folder of results."""

    file: str
    value: Mapping[str, Any]

    @property
    def id(self) -> str:
        return self.value["id"]


class Error(NamedTuple):
    """Why an item has no answer; technical is False for what the model itself caused."""

    cause: str
    message: str
    technical: bool


def error_of(value: Mapping[str, Any]) -> Error | None:
    """Return the error that stopped the generation of an entry; None if nothing did."""
    result = value.get("result")
    if not isinstance(result, str) or not result.startswith(_ERROR):
        return None
    trace = value.get("traceback", "")
    message = result.removeprefix(_ERROR).lstrip(": ")[:300]
    kind = re.match(r"[\w.]*?(\w+)(?::|$)", last_line(trace))
    name = kind[1] if kind else "unknown"
    text = message.lower()
    if name == "BadRequestError" and "context" in text and ("length" in text or "token" in text):
        return Error("context", message, technical=False)
    if f"in {_RENDERING}" in trace and _HANDLER in trace and name in ("KeyError", "TypeError", "AttributeError"):
        return Error("malformed_call", f"{name}: {message}", technical=False)
    cause = "protocol" if name in _PROTOCOL else _snake(name)
    return Error(f"endpoint_{cause}", message, technical=True)


def read_new_entries(results: Path, known: Iterable[str], seen: dict[Path, tuple[int, int]]) -> list[Entry]:
    """The complete lines of all result files whose ids are not `known`.

    seen: size and time of each file when it was last read, which this updates: unchanged files
    are not read again. A half-written last line is left for the next reading.
    """
    known = set(known)
    entries = []
    for path in sorted(results.rglob(RESULTS)):
        state = path.stat()
        if seen.get(path) == (mark := (state.st_size, state.st_mtime_ns)):
            continue
        seen[path] = mark
        for raw in path.read_bytes().splitlines(keepends=True):
            identity = _ID.match(raw)
            if identity is None or not raw.endswith(b"\n") or identity[1].decode() in known:
                continue
            entries.append(Entry(path.relative_to(results).as_posix(), json.loads(raw)))
    return entries


def tokens(value: Mapping[str, Any]) -> tuple[int, int]:
    """Input and output tokens of an entry, as the endpoint counted them."""
    return _total(value.get("input_token_count")), _total(value.get("output_token_count"))


def seconds(value: Mapping[str, Any]) -> float:
    """The time that the endpoint took for an entry."""
    return round(float(_total(value.get("latency"), float)), 3)


def read_verdicts(scores: Path, category: str, ids: Sequence[str]) -> dict[str, bool]:
    """The official verdict of each of the items that were scored.

    ValueError if the tool scored other items than these.
    """
    path = next(scores.rglob(f"BFCL_v4_{category}_score.json"), None)
    if path is None:
        raise ValueError(f"The official tool wrote no score of {category} below {scores}.")
    head, *wrong = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    failed = {entry["id"] for entry in wrong}
    verdicts = {identity: identity not in failed for identity in ids}
    if head["total_count"] != len(ids) or head["correct_count"] != sum(verdicts.values()):
        raise ValueError(
            f"{path} scores {head['correct_count']} of {head['total_count']} items right, and {sum(verdicts.values())} "
            f"of {len(ids)} were expected: remove the folder and evaluate again."
        )
    return verdicts


def read_official(scores: Path, complete: Iterable[str]) -> dict[str, float]:
    """The columns of the official table whose categories are all `complete`, in [0, 1]."""
    table = scores / "data_overall.csv"
    if not table.is_file():
        return {}
    with table.open(encoding="utf-8", newline="") as stream:
        row = next(csv.DictReader(stream), {})
    complete = set(complete)
    return {
        name: round(float(row[name].rstrip("%")) / 100, 6)
        for name, needed in OFFICIAL_COLUMNS.items()
        if complete >= set(needed) and row.get(name, "N/A") != "N/A"
    }


def _total(value: Any, kind: type = int) -> Any:
    """The sum of a number, or of lists of lists of numbers."""
    if isinstance(value, list):
        return sum((_total(each, kind) for each in value), kind(0))
    return kind(value) if isinstance(value, int | float) else kind(0)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Error")).lower()
