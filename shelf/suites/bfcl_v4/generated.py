"""The answers that the official tool has generated so far, kept so that no interruption loses them.

The tool's own files are not safe: with chosen items it rewrites them after every answer,
and it counts a technical failure as an answer. So answers are copied into
``generated.jsonl`` as they come, and the tool's files are made from it before the tool runs.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seal.system.files import write_jsonl
from shelf.suites.bfcl.journal import resumed
from shelf.suites.bfcl_v4.categories import MEMORY, Chain, Item, scenario_of
from shelf.suites.bfcl_v4.results import RESULTS, Entry, Error, error_of, read_new_entries

FILE = "generated.jsonl"


class Generated:
    """The answers of one evaluation.

    results: the tool's folder of results. items: all that are wanted; chains: the memory
    dialogues that some of them depend on. wanted: the ids of both, in order. entries: answers by
    id. errors: the technical failures since the last `prepare`; failures: the last one of each id.
    """

    def __init__(self, out: Path, results: Path, items: Sequence[Item], chains: Sequence[Chain]):
        results.mkdir(parents=True, exist_ok=True)
        self._path = out / FILE
        self._results = results
        self._items = tuple(items)
        self._chains = tuple(chains)
        self.wanted = [identity for chain in chains for identity in chain.ids] + [item.id for item in items]
        self._seen: dict[Path, tuple[int, int]] = {}
        self.errors: dict[str, Error] = {}
        self.failures: dict[str, Error] = {}
        kept = (Entry(line["file"], line["entry"]) for line in resumed(self._path))
        self.entries = {entry.id: entry for entry in kept}
        self.collect()

    @property
    def missing(self) -> list[str]:
        """The ids that are wanted and have no answer, in order."""
        return [identity for identity in self.wanted if identity not in self.entries]

    def collect(self) -> int:
        """Copy what the tool has written since the last call; returns the number of answers."""
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
        """Make the tool's files from what is kept, without technical failures and half-filled memories."""
        dropped = {identity for chain in self._chains if self._broken(chain) for identity in self._of(chain)}
        self.entries = {identity: entry for identity, entry in self.entries.items() if identity not in dropped}
        if dropped:
            write_jsonl(map(_line, self.entries.values()), self._path)
        self.errors = {}
        self._seen = {}
        by_file: dict[str, list[Any]] = {}
        for entry in self.entries.values():
            by_file.setdefault(entry.file, []).append(entry.value)
        for path in self._results.rglob(RESULTS):
            if path.relative_to(self._results).as_posix() not in by_file:
                path.unlink()
        for name, values in by_file.items():
            write_jsonl(values, self._results / name)

    def _of(self, chain: Chain) -> list[str]:
        """The answers of a chain and of the questions that depend on it."""
        questions = [item.id for item in self._items if item.category == chain.category]
        return [*chain.ids, *(each for each in questions if scenario_of(each) == chain.scenario)]

    def _broken(self, chain: Chain) -> bool:
        """Return whether a memory was not filled completely, so that its questions asked a wrong one."""
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


def cause_of(item: Item, generated: Generated) -> Error:
    """Why an item has no answer after all attempts."""
    if item.id in generated.failures:
        return generated.failures[item.id]
    if item.category in MEMORY and generated.failures:
        return Error("memory_prerequisite", "a dialogue that fills its memory failed", technical=True)
    return Error("not_generated", "the official tool ended before it", technical=True)


def _line(entry: Entry) -> dict[str, Any]:
    return {"file": entry.file, "entry": entry.value}
