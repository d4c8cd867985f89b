"""The attempts that the program has appended to its file, read while it runs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seal.evaluation.suites.agentdojo.tasks import Attempt
from seal.jsonl import BadLine, read_jsonl
from seal.records.suite import ItemRecord

SUITE = "agentdojo"
FILE = "attempts.jsonl"


class Played:
    """The attempts with a verdict, and the last technical failure of the others."""

    def __init__(self, out: Path):
        out.mkdir(parents=True, exist_ok=True)
        self.path = out / FILE
        self.path.touch()
        self.records: dict[Attempt, ItemRecord] = {}
        self.faults: dict[Attempt, ItemRecord] = {}
        self.repair()
        self.read()

    def repair(self) -> None:
        """Cut off a half-written last line: its task will be played again."""
        os.truncate(self.path, self.path.read_bytes().rfind(b"\n") + 1)

    def read(self) -> int:
        """Read the file again; returns its number of attempts. ValueError if it is damaged."""
        lines = 0
        for line in read_jsonl(self.path):
            if isinstance(line, BadLine):
                if "cut short" in line.problem:  # the program is writing it
                    continue
                raise ValueError(f"The record of attempts is damaged: {line}.")
            lines += 1
            self._keep(record_of(line.value))
        return lines

    def _keep(self, record: ItemRecord) -> None:
        key = Attempt(record.category, record.item, record.sample)
        if record.infra is None:
            self.records[key] = record
            self.faults.pop(key, None)
        elif key not in self.records:
            self.faults[key] = record

    def record(self, attempt: Attempt) -> ItemRecord:
        """The record of an attempt, played or not."""
        found = self.records.get(attempt) or self.faults.get(attempt)
        if found is not None:
            return found
        known = {"suite": SUITE, "category": attempt.suite, "item": attempt.task, "sample": attempt.sample}
        return ItemRecord(**known, score=0.0, infra="not_played", infra_message="the program ended before it")


def record_of(line: Mapping[str, Any]) -> ItemRecord:
    """An attempt of the program as a record; infra names why it has no verdict."""
    return ItemRecord(
        suite=SUITE,
        category=line["suite"],
        item=line["task"],
        sample=line["sample"],
        score=float(line.get("passed", False)),
        cluster=f"{line['suite']}-{line['task']}",
        stop=line.get("stop", "") if line["infra"] is None else "",
        infra=line["infra"],
        infra_message=line["message"],
        input_tokens=line.get("input_tokens", 0),
        output_tokens=line.get("output_tokens", 0),
        seconds=line.get("seconds", 0.0),
    )
