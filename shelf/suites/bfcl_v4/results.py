"""The official tool's files: what it generated, what it scored, and which entries are not answers at all.

If the generation of an item raised, the tool writes "Error during inference" as its answer and scores it as wrong. Two
kinds of such errors are the model's: a dialogue that exceeds its context, and a call that the tool's handler cannot
render into the next prompt. All others are technical. With chosen items, the tool rewrites its files after each answer,
so answers are copied to ``generated.jsonl`` as they arrive, and the files are made from it before the tool runs.
"""

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seal.system.files import write_jsonl
from seal.system.text import last_line
from shelf.suites.bfcl_v4.categories import OFFICIAL_COLUMNS, Chain, Item, scenario_of
from shelf.suites.journal import resumed
from shelf.suites.records import Fault

RESULTS = "BFCL_v4_*_result.json"
GENERATED = "generated.jsonl"
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


def error_of(value: Mapping[str, Any]) -> Fault | None:
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
        return Fault("context", message, technical=False)
    if f"in {_RENDERING}" in trace and _HANDLER in trace and name in ("KeyError", "TypeError", "AttributeError"):
        return Fault("malformed_call", f"{name}: {message}", technical=False)
    cause = "protocol" if name in _PROTOCOL else _snake(name)
    return Fault(f"endpoint_{cause}", message)


def read_new_entries(results: Path, known: Iterable[str], seen: dict[Path, tuple[int, int]]) -> list[Entry]:
    """The complete lines of all result files whose ids are not `known`.

    seen: size and time of each file at its last reading, updated here: unchanged files
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
    """The official verdict of each item that was scored; ValueError if the tool scored other items than these."""
    path = next(scores.rglob(f"BFCL_v4_{category}_score.json"), None)
    if path is None:
        raise ValueError(f"The official tool wrote no score of {category} below {scores}.")
    head, *wrong = map(json.loads, path.read_bytes().splitlines())  # of a text, U+2028 in an answer would end a line
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


class Generated:
    """The answers of one evaluation.

    results: the tool's results folder. items: all items that are wanted. chains: the memory
    dialogues on which some of them depend. wanted: the ids of both, in order. entries: answers by
    id. errors: technical failures since the last `prepare`. failures: the last failure of each id.
    """

    def __init__(self, out: Path, results: Path, items: Sequence[Item], chains: Sequence[Chain]):
        results.mkdir(parents=True, exist_ok=True)
        self._path = out / GENERATED
        self._results = results
        self._items = tuple(items)
        self._chains = tuple(chains)
        self.wanted = [identity for chain in chains for identity in chain.ids] + [item.id for item in items]
        self._seen: dict[Path, tuple[int, int]] = {}
        self.errors: dict[str, Fault] = {}
        self.failures: dict[str, Fault] = {}
        kept = (Entry(line["file"], line["entry"]) for line in resumed(self._path))
        self.entries = {entry.id: entry for entry in kept}
        self.collect()

    @property
    def missing(self) -> list[str]:
        """The wanted ids without an answer, in order."""
        return [identity for identity in self.wanted if identity not in self.entries]

    def collect(self) -> int:
        """Copy what the tool has written since the last call; return the number of answers."""
        known = self.entries.keys() | self.errors.keys()
        new = []
        for entry in read_new_entries(self._results, known, self._seen):
            error = error_of(entry.value)
            if error is not None and error.technical:
                self.errors[entry.id] = self.failures[entry.id] = error
            else:
                self.entries[entry.id] = entry
                new.append(entry)
        with self._path.open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(_line(entry), ensure_ascii=False) + "\n" for entry in new)
        return len(self.entries)

    def prepare(self) -> None:
        """Write the tool's files from the kept answers, without technical failures and half-filled memories."""
        dropped = {identity for chain in self._chains if self._broken(chain) for identity in self._of(chain)}
        self.entries = {identity: entry for identity, entry in self.entries.items() if identity not in dropped}
        if dropped:
            write_jsonl(map(_line, self.entries.values()), self._path)
        self.errors = {}
        self._seen = {}
        by_file: dict[str, list[Any]] = {}
        for identity in filter(self.entries.__contains__, self.wanted):  # the tool scores everything in its files
            by_file.setdefault(self.entries[identity].file, []).append(self.entries[identity].value)
        for path in self._results.rglob(RESULTS):
            if path.relative_to(self._results).as_posix() not in by_file:
                path.unlink()
        for name, values in by_file.items():
            write_jsonl(values, self._results / name)

    def _of(self, chain: Chain) -> list[str]:
        """The ids of a chain and of the questions that depend on it."""
        questions = [item.id for item in self._items if item.category == chain.category]
        return [*chain.ids, *(each for each in questions if scenario_of(each) == chain.scenario)]

    def _broken(self, chain: Chain) -> bool:
        """Return whether a memory was not filled completely, so that its questions used a wrong memory."""
        written = [self.entries.get(identity) for identity in chain.ids]
        if None in written:
            return True
        unanswered = any(identity not in self.entries for identity in self._of(chain))
        filled = any(error_of(entry.value) is None for entry in written if entry)
        return unanswered and filled and not self._snapshot(chain)

    def _snapshot(self, chain: Chain) -> bool:
        """Return whether the tool's file of the filled memory exists."""
        name = f"agentic/memory/{chain.category.removeprefix('memory_')}/memory_snapshot/{chain.scenario}_final.json"
        return next(self._results.glob(f"*/{name}"), None) is not None


def cause_of(item: Item, generated: Generated) -> Fault:
    """Why an item has no answer after all attempts."""
    if item.id in generated.failures:
        return generated.failures[item.id]
    lost = generated.failures.keys() - generated.entries.keys()
    if any(item.id in generated._of(chain) and lost.intersection(chain.ids) for chain in generated._chains):
        return Fault("memory_prerequisite", "a dialogue that fills its memory failed")
    return Fault("not_generated", "the official tool ended before it")


def _line(entry: Entry) -> dict[str, Any]:
    return {"file": entry.file, "entry": entry.value}
