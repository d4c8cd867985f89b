"""The finished simulations of an evaluation, kept as they come: the tool rewrites its file after each of them."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from shelf.suites.bfcl.journal import resumed
from shelf.suites.records import ItemRecord
from shelf.suites.tau2.results import Sides, TaskFault, read_faults, read_simulations, record_of

FILE = "simulations.jsonl"


class Key(NamedTuple):
    """Which simulation it is."""

    domain: str
    task: str
    trial: int


class Simulations:
    """The simulations with a verdict by key, and the technical faults since the program began."""

    def __init__(self, out: Path):
        self._path = out / FILE
        self.records: dict[Key, ItemRecord] = {}
        self.faults: dict[Key, ItemRecord] = {}
        for line in resumed(self._path):
            self._keep(ItemRecord(**line["record"]))

    def add(self, domain: str, trial: int, simulations: list[dict[str, Any]], faults: Mapping[str, TaskFault]) -> None:
        """Keep what is new."""
        with self._path.open("a", encoding="utf-8") as stream:
            for simulation in simulations:
                key = Key(domain, simulation["task_id"], trial)
                if key in self.records:
                    continue
                record = record_of(domain, trial, simulation, faults.get(key.task))
                self._keep(record)
                if record.infra is None:
                    stream.write(json.dumps({"record": asdict(record), "simulation": simulation}) + "\n")

    def _keep(self, record: ItemRecord) -> None:
        key = Key(record.category, record.item, record.sample)
        (self.records if record.infra is None else self.faults)[key] = record
        if record.infra is None:
            self.faults.pop(key, None)


class Watch:
    """Reads the results and the log of a program while it runs, whenever they have changed."""

    def __init__(self, kept: Simulations, domain: str, trial: int, folder: Path, sides: Sides):
        self._kept, self._domain, self._trial, self._sides = kept, domain, trial, sides
        self._results = folder / "r.json"
        self.log = folder / "tau2.log"
        self._mark: list[tuple[int, int]] = []

    def __call__(self) -> int:
        """Return the number of known simulations, those with technical faults included."""
        states = [path.stat() for path in (self._results, self.log) if path.is_file()]
        mark = [(state.st_size, state.st_mtime_ns) for state in states]
        if mark != self._mark:
            self._mark = mark
            log = self.log.read_text(encoding="utf-8", errors="replace") if self.log.is_file() else ""
            self._kept.add(self._domain, self._trial, read_simulations(self._results), read_faults(log, self._sides))
        return len(self._kept.records) + len(self._kept.faults)
