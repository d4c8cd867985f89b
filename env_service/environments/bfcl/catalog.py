"""The 800 multi-turn tasks of the benchmark, as data.

This module reads everything from the data files of the pinned `bfcl_eval` wheel and imports no simulator. A
:class:`Task` is immutable and shared: code that runs it copies `initial_config` first (see `tools.py`).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from env_service.environments.base import Document, TaskFacts
from env_service.environments.bfcl.splits import side_of
from env_service.environments.kit.tasks import Turns
from seal.records.benchmark import CATEGORIES, variant

CLASSES = (
    "GorillaFileSystem",
    "MathAPI",
    "MessageAPI",
    "TwitterAPI",
    "TicketAPI",
    "TradingBot",
    "TravelAPI",
    "VehicleControlAPI",
)


@dataclass(frozen=True)
class Task(Turns):
    """One multi-turn task; caches elsewhere use its id as key.

    users holds one message per user turn, None when the turn reveals withheld tools instead. withheld maps the
    revealing turn to the tools that it reveals. reference holds the call strings of each turn; a turn's entry is empty
    when nothing should be called. The data file's `excluded_function` is left out because the package never reads it:
    those tools stay visible and callable, as in its own prompts. hidden holds tools that no turn shows; the benchmark's
    own tasks hide none. In a prefix, tools that a later turn of the whole task reveals stay hidden.
    """

    id: str
    category: str
    scenario: int
    users: tuple[str | None, ...]
    initial_config: Mapping[str, Any]
    involved_classes: tuple[str, ...]
    withheld: Mapping[int, tuple[str, ...]]
    reference: tuple[tuple[str, ...], ...]
    hidden: frozenset[str] = frozenset()

    @property
    def long_context(self) -> bool:
        """True when the simulators load their inflated scenario."""
        return variant(self.category) == "long_context"

    @property
    def facts(self) -> TaskFacts:
        return TaskFacts(self.id, self.category, side_of(self.id), str(self.scenario), len(self.users))


@cache
def data() -> Path:
    """The folder of the package's data files."""
    import bfcl_eval  # imported in functions: code that judges no benchmark task runs without the package

    return Path(bfcl_eval.__file__).parent / "data"


def _documents_file(class_name: str) -> Path:
    from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING

    return data() / "multi_turn_func_doc" / MULTI_TURN_FUNC_DOC_FILE_MAPPING[class_name]


def package_version() -> str:
    return version("bfcl-eval")


def _lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


@cache
def data_hash() -> str:
    """Return the sha256 (hex) over names and bytes of the tasks' data files; every result records it."""
    prompts = [data() / f"BFCL_v4_multi_turn_{category}.json" for category in CATEGORIES]
    answers = [data() / "possible_answer" / path.name for path in prompts]
    tools = [_documents_file(name) for name in CLASSES]
    digest = hashlib.sha256()
    for path in (*prompts, *answers, *tools):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def documents(class_name: str) -> tuple[Document, ...]:
    """Return the function documents of one simulator class, in the package's order."""
    return tuple(_lines(_documents_file(class_name)))


@cache
def tool_documents() -> Mapping[str, Document]:
    """Return the documents of all tools by name; names are unique over the eight classes."""
    return {document["name"]: document for name in CLASSES for document in documents(name)}


def _task(category: str, entry: Mapping[str, Any], answer: Mapping[str, Any]) -> Task:
    return Task(
        id=entry["id"],
        category=category,
        scenario=int(entry["id"].rsplit("_", 1)[1]),
        users=tuple(turn[0]["content"] if turn else None for turn in entry["question"]),
        initial_config=MappingProxyType(entry["initial_config"]),
        involved_classes=tuple(entry["involved_classes"]),
        withheld=MappingProxyType(
            {int(turn): tuple(names) for turn, names in entry.get("missed_function", {}).items()}
        ),
        reference=tuple(tuple(calls) for calls in answer["ground_truth"]),
    )


@cache
def load_tasks() -> Mapping[str, Task]:
    """Return all tasks by id, category after category in the package's order."""
    tasks = {}
    for category in CATEGORIES:
        name = f"BFCL_v4_multi_turn_{category}.json"
        answers = {answer["id"]: answer for answer in _lines(data() / "possible_answer" / name)}
        for entry in _lines(data() / name):
            tasks[entry["id"]] = _task(category, entry, answers[entry["id"]])
    return MappingProxyType(tasks)


def all_tools(task: Task) -> tuple[Document, ...]:
    """Return the documents of the task's classes, including withheld and hidden tools."""
    return tuple(document for name in task.involved_classes for document in documents(name))


def revealed_tools(task: Task, turn: int) -> tuple[Document, ...]:
    """Return the documents that the environment announces at the start of `turn` (none in most turns)."""
    by_name = {document["name"]: document for document in all_tools(task)}
    return tuple(by_name[name] for name in task.withheld.get(turn, ()))


def available_tools(task: Task, turn: int) -> tuple[Document, ...]:
    """Return the documents visible in a turn: the initial ones in the package's order, then those revealed since."""
    withheld = {name for names in task.withheld.values() for name in names} | task.hidden
    start = tuple(document for document in all_tools(task) if document["name"] not in withheld)
    revealed = (document for at in sorted(task.withheld) if at <= turn for document in revealed_tools(task, at))
    return start + tuple(revealed)
