"""A whole evaluation: many tasks at once, written as they finish, resumed where it stopped.

Every finished rollout is appended to ``journal.jsonl``; when all are there they
become ``validation_log/<step>.jsonl`` in the order of tasks. An interrupted
evaluation started again with the same settings plays what is missing and what
failed for reasons other than the policy, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seal.data.rows import TaskRow
from seal.evaluation.endpoint import ChatEndpoint, EndpointRefused
from seal.evaluation.episode import EpisodeSettings, play
from seal.files import write_json, write_text
from seal.jsonl import BadLine, read_jsonl
from seal.rollout.env_client import EnvironmentClient

JOURNAL = "journal.jsonl"
SETTINGS = "settings.json"
Key = tuple[str, int, int]


@dataclass(frozen=True)
class Outcome:
    """What an evaluation came to: its log, and how many rollouts were played now and kept from before."""

    log: Path
    played: int
    kept: int
    failed: int


class Journal:
    """The finished rollouts of one evaluation, by task, prefix and sample; the later line counts."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        """Open or continue; ValueError when the folder holds an evaluation with other settings."""
        folder.mkdir(parents=True, exist_ok=True)
        known = folder / SETTINGS
        if known.is_file():
            recorded = json.loads(known.read_text(encoding="utf-8"))
            differing = sorted(key for key in {*recorded, *settings} if recorded.get(key) != settings.get(key))
            if differing:
                raise ValueError(
                    f"{folder} holds an evaluation with another {', '.join(differing)}: give another --out, or the "
                    "same settings to resume it."
                )
        else:
            write_json(dict(settings), known)
        self._path = folder / JOURNAL
        self.lines: dict[Key, dict[str, Any]] = {}
        self._recover()

    def _recover(self) -> None:
        """Read what is there; a half-written last line is cut off, its rollout will be played again."""
        if not self._path.is_file():
            return
        raw = self._path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) != len(raw):
            os.truncate(self._path, len(whole))
        for line in read_jsonl(self._path):
            if isinstance(line, BadLine):
                raise ValueError(f"The journal is damaged: {line}")
            self.lines[_key(line.value)] = dict(line.value)

    def add(self, line: Mapping[str, Any]) -> None:
        """Append one finished rollout."""
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
        self.lines[_key(line)] = dict(line)

    def finished(self) -> set[Key]:
        """The rollouts that need not be played again."""
        return {key for key, line in self.lines.items() if line.get("infra") is None}


async def evaluate(
    rows: Sequence[TaskRow],
    samples: int,
    endpoint: ChatEndpoint,
    service: EnvironmentClient,
    settings: EpisodeSettings,
    journal: Journal,
    folder: Path,
    concurrency: int,
    on_line: Callable[[Mapping[str, Any]], None],
) -> Outcome:
    """Play every row ``samples`` times, at most ``concurrency`` at once, and write the log.

    on_line is called with each finished line. EndpointRefused ends the
    evaluation; what had finished stays in the journal.
    """
    done = journal.finished()
    wanted = [(row, sample) for row in rows for sample in range(samples)]
    queue = [(row, sample) for row, sample in wanted if (row.task_id, row.turns, sample) not in done]
    gate = asyncio.Semaphore(concurrency)

    async def one(row: TaskRow, sample: int) -> None:
        async with gate:
            line = await play(row, sample, endpoint, service, settings)
        journal.add(line)
        on_line(line)

    try:
        async with asyncio.TaskGroup() as group:
            for row, sample in queue:
                group.create_task(one(row, sample))
    except BaseExceptionGroup as errors:
        refused = errors.subgroup(EndpointRefused)
        if refused is None:
            raise
        raise refused.exceptions[0] from None
    ordered = [journal.lines[row.task_id, row.turns, sample] for row, sample in wanted]
    log = folder / "validation_log" / f"{settings.step}.jsonl"
    write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in ordered), log)
    failed = sum(line.get("infra") is not None for line in ordered)
    return Outcome(log, len(queue), len(wanted) - len(queue), failed)


def _key(line: Mapping[str, Any]) -> Key:
    source = str(line["data_source"])
    return line["task_id"], int(source.partition("@")[2] or -1), int(line["sample"])
