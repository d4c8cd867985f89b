"""The results of an evaluation suite: one line for every item and sample, and a head that says how they were made.

Every suite writes the same two files into its folder, so that statistics can compare models
on any suite: ``items.jsonl`` and ``suite.json``.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from seal.records.source import WHOLE
from seal.records.trajectory import PASS_SCORE, Finite
from seal.system.files import write_json, write_jsonl
from seal.system.jsonl import BadLine, read_records

ITEMS = "items.jsonl"
HEAD = "suite.json"

Format = Literal[1]
"""The format of both files."""


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ItemRecord:
    """One attempt at one item of a suite.

    score: in [0, 1]. cluster: what the item shares with others, which are then not
    independent: a scenario, a question; by default the item itself. stop: how the attempt
    ended, in the suite's own word. infra names a technical failure, of an endpoint or of a
    simulated user, and infra_message describes it; the score of such a record means nothing.
    input_tokens and output_tokens: those of the model, 0 if unknown. Statistics of validation logs read it as a line
    of a whole task without turns.
    """

    suite: str
    category: str
    item: str
    sample: int
    score: Finite
    cluster: str = ""
    stop: str = ""
    infra: str | None = None
    infra_message: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: Finite = 0.0
    format: Format = 1

    step: ClassVar[int] = 0
    prefix: ClassVar[int] = WHOLE
    turns: ClassVar[int] = 0
    turns_passed: ClassVar[int] = 0
    labels: ClassVar[tuple[str, ...]] = ()

    @property
    def passed(self) -> bool:
        """True if the item counts as solved."""
        return self.score >= PASS_SCORE

    @property
    def task_id(self) -> str:
        """The item's name; items of two categories may have the same id."""
        return f"{self.category}/{self.item}"

    @property
    def task(self) -> tuple[str, int]:
        """The item as a whole task."""
        return self.task_id, WHOLE

    @property
    def scenario(self) -> str:
        """The key of the items that are drawn together when intervals are computed."""
        return self.cluster or self.item


class Fault(NamedTuple):
    """Why an attempt has no answer; technical is False for what the model itself caused."""

    cause: str
    message: str
    technical: bool = True


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SuiteHead:
    """The conditions under which the items of a folder were measured.

    package and version: those of the official tool, empty for our own. data_hash: that of the
    tasks. settings: what results depend on. skipped: one sentence per category that was not
    played. official: figures in [0, 1] that the official tool computed, by its own names.
    """

    suite: str
    model: str
    package: str = ""
    version: str = ""
    data_hash: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    official: dict[str, Finite] = field(default_factory=dict)
    format: Format = 1


class SuiteResults(NamedTuple):
    """The content of a suite's folder."""

    head: SuiteHead
    items: tuple[ItemRecord, ...]
    bad: tuple[BadLine, ...] = ()


def write_results(folder: Path, head: SuiteHead, items: Sequence[ItemRecord]) -> None:
    """Write both files, each atomically."""
    write_jsonl(map(asdict, items), folder / ITEMS)
    write_json(asdict(head), folder / HEAD)


def read_results(folder: Path) -> SuiteResults:
    """Read the results of a folder; ValueError if there are none or their head cannot be used."""
    path = folder / HEAD
    if not (path.is_file() and (folder / ITEMS).is_file()):
        raise ValueError(f"{folder} holds no results of a suite ({HEAD} and {ITEMS}): name the --out of an evaluation.")
    try:
        head = SuiteHead(**json.loads(path.read_text(encoding="utf-8")))
    except (ValidationError, json.JSONDecodeError, TypeError) as error:
        raise ValueError(f"{path} is not the head of a suite's results ({error}): evaluate again.") from error
    return SuiteResults(head, *read_records(folder / ITEMS, lambda value: ItemRecord(**value)))
