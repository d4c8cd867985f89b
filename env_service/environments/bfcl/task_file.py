"""Files of synthesised tasks: one JSON object per line, named by a hash of its content.

The hash covers all that an episode depends on; a task's origin and kinds can be added without a new id.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from env_service.environments.bfcl.catalog import CLASSES, Task, documents
from env_service.environments.bfcl.splits import side_of
from env_service.environments.bfcl.tools import parse_reference
from seal.records.benchmark import Category, Level, parse_task_id
from seal.system.files import json_hash, write_jsonl
from seal.system.jsonl import BadLine, read_records

FORMAT = 1
"""The version of the format; a reader refuses others."""

_HASHED = ("category", "level", "classes", "config", "users", "reference", "withheld", "hidden")


class Provenance(BaseModel):
    """The origin of a task: the writer of its texts, the seed, and the number of the task under that seed.

    model: the language model that the writer asked, if any. source: the benchmark task whose state it uses, if any.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    writer: str
    seed: int
    number: int
    model: Annotated[str | None, Field(exclude_if=lambda model: model is None)] = None
    source: str | None = None

    @model_validator(mode="after")
    def _refuse_evaluation_tasks(self) -> Self:
        if self.source is not None and side_of(self.source) == "eval":
            raise ValueError(f"{self.source} belongs to the evaluation side and must not be a source of tasks.")
        return self


class MadeTask(BaseModel):
    """One synthesised task.

    users: one message per user turn, None in the turn that reveals withheld tools. reference: the call strings of each
    turn. withheld: the tools that a turn reveals. hidden: tools that are never shown. kinds: what the task practises.
    demonstration: by turn, the calls as made by somebody who does not know what will fail; failing calls come before
    the reference's calls.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = FORMAT
    id: str = ""
    category: Category
    level: Level
    kinds: tuple[str, ...] = ()
    classes: tuple[str, ...]
    config: dict[str, Any]
    users: Annotated[tuple[str | None, ...], Field(min_length=1)]
    reference: tuple[tuple[str, ...], ...]
    withheld: dict[int, tuple[str, ...]] = {}
    hidden: tuple[str, ...] = ()
    demonstration: tuple[tuple[str, ...], ...] = ()
    provenance: Provenance

    @model_validator(mode="after")
    def _check(self) -> Self:
        if unknown := sorted(set(self.classes) - set(CLASSES)):
            raise ValueError(f"classes has {unknown[0]!r}: expected some of {', '.join(CLASSES)}.")
        if len(self.reference) != len(self.users):
            raise ValueError(f"reference has {len(self.reference)} turns and users has {len(self.users)}.")
        tools = {document["name"] for name in self.classes for document in documents(name)}
        named = {parse_reference(call)[0] for calls in self.reference for call in calls}
        named |= {name for names in self.withheld.values() for name in names} | set(self.hidden)
        if foreign := sorted(named - tools):
            raise ValueError(f"{foreign[0]} is a tool of none of its classes ({', '.join(self.classes)}).")
        if late := [turn for turn in self.withheld if not 0 < turn < len(self.users)]:
            raise ValueError(f"withheld reveals tools in turn {late[0]}, but the turns are 0..{len(self.users) - 1}.")
        return self

    def content_id(self) -> str:
        """The id derived from the content: level, category and the first 12 digits of its sha256."""
        content = self.model_dump(mode="json", include=set(_HASHED))
        return f"synth_{self.level}_{self.category}_{json_hash(content)[:12]}"

    def named(self) -> Self:
        """The same task with the id of its content."""
        return self.model_copy(update={"id": self.content_id()})

    @property
    def task(self) -> Task:
        """The task as the environment plays it, a new object each time: keep it, so that its reference runs once."""
        category, scenario = parse_task_id(self.id)
        return Task(
            id=self.id,
            category=category,
            scenario=scenario,
            users=self.users,
            initial_config=MappingProxyType(self.config),
            involved_classes=self.classes,
            withheld=MappingProxyType(self.withheld),
            reference=self.reference,
            hidden=frozenset(self.hidden),
        )


def write_task_file(tasks: Iterable[MadeTask], path: Path | str) -> None:
    write_jsonl((task.model_dump(mode="json") for task in tasks), path)


def read_task_file(path: Path | str) -> tuple[MadeTask, ...]:
    """Every task of a file, in order; ValueError names the first line that is not a task, or a wrong or repeated id."""
    tasks, bad = parse_task_file(path)
    if bad:
        raise ValueError(str(bad[0]))
    if not tasks:
        raise ValueError(f"The task file {path} holds no task: make it with seal tasks synthesise.")
    if problems := identity_problems(tasks):
        raise ValueError(f"{path}: {problems[0]}")
    return tasks


def parse_task_file(path: Path | str) -> tuple[tuple[MadeTask, ...], tuple[BadLine, ...]]:
    """The tasks of a file and the lines that are not tasks; ids are not checked. ValueError for a missing file."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"The task file {path} does not exist: make it with seal tasks synthesise.")
    return read_records(path, MadeTask.model_validate)


def identity_problems(tasks: Sequence[MadeTask]) -> list[str]:
    """One sentence for each task whose id does not match its content, and for each task that occurs twice."""
    problems, seen = [], set()
    for task in tasks:
        if task.id != task.content_id():
            problems.append(f"{task.id!r} is not the id of its content ({task.content_id()}): synthesise it again.")
        if task.id in seen:
            problems.append(f"{task.id} occurs twice: remove one of the two.")
        seen.add(task.id)
    return problems
