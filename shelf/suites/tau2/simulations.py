"""The finished simulations of an evaluation, kept as they come: the tool rewrites its file after each of them."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seal.system.jsonl import BadLine, read_jsonl
from shelf.suites.records import ItemRecord
from shelf.suites.tau2.results import Fault, read_faults, read_simulations, record_of

FILE = "simulations.jsonl"
REST = 20.0
"""A file is read again after this many times the time that reading it took."""


class Key(NamedTuple):
    """Which simulation it is."""

    domain: str
    task: str
    trial: int


class Simulations:
    """The simulations with a verdict by key, and the technical faults since the program began."""

    def __init__(self, out: Path):
        out.mkdir(parents=True, exist_ok=True)
        self._path = out / FILE
        self.records: dict[Key, ItemRecord] = {}
        self.faults: dict[Key, ItemRecord] = {}
        if self._path.is_file():
            # A half-written last line is cut off: its task will be played again.
            os.truncate(self._path, self._path.read_bytes().rfind(b"\n") + 1)
            for line in read_jsonl(self._path):
                if isinstance(line, BadLine):
                    raise ValueError(f"The record of simulations is damaged: {line}.")
                self._keep(ItemRecord.from_line(line.value["record"]))

    def add(self, domain: str, trial: int, simulations: list[dict[str, Any]], faults: Mapping[str, Fault]) -> int:
        """Keep what is new; returns how many simulations are known, those with technical faults included."""
        with self._path.open("a", encoding="utf-8") as stream:
            for simulation in simulations:
                key = Key(domain, simulation["task_id"], trial)
                if key in self.records:
                    continue
                record = record_of(domain, trial, simulation, faults.get(key.task))
                self._keep(record)
                if record.infra is None:
                    stream.write(json.dumps({"record": record.line(), "simulation": simulation}) + "\n")
        return len(self.records) + len(self.faults)

    def _keep(self, record: ItemRecord) -> None:
        key = Key(record.category, record.item, record.sample)
        (self.records if record.infra is None else self.faults)[key] = record
        if record.infra is None:
            self.faults.pop(key, None)


class Watch:
    """Reads a program's result file while it runs, no more often than is worth it."""

    def __init__(self, kept: Simulations, domain: str, trial: int, folder: Path, sides: "Sides"):
        self._kept, self._domain, self._trial, self._sides = kept, domain, trial, sides
        self.results = folder / "r.json"
        self.log = folder / "tau2.log"
        self._next = 0.0
        self._count = 0

    def __call__(self) -> int:
        """How many simulations are known."""
        now = time.monotonic()
        if now >= self._next:
            self._count = self.read()
            self._next = time.monotonic() + REST * (time.monotonic() - now)
        return self._count

    def read(self) -> int:
        """Read the file now."""
        log = self.log.read_text(encoding="utf-8", errors="replace") if self.log.is_file() else ""
        faults = read_faults(log, self._sides.agent, self._sides.user, self._sides.user_calls_tools)
        return self._kept.add(self._domain, self._trial, read_simulations(self.results), faults)


class Sides(NamedTuple):
    """The two models of a dialogue, as the tool names them; user is None without one."""

    agent: str
    user: str | None
    user_calls_tools: bool
