"""The results of an evaluation suite: one line for every item and sample, and a head that says how they were made.

Every suite writes the same two files into its folder, so that statistics compare models on
any of them: ``items.jsonl`` and ``suite.json``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AllowInfNan, ConfigDict, Strict, ValidationError
from pydantic.dataclasses import dataclass

from seal.records.trajectory import PASS_SCORE, TrajectoryRecord
from seal.system.files import write_json, write_jsonl
from seal.system.jsonl import BadLine, read_records

FORMAT = 1
"""The format of both files."""

ITEMS = "items.jsonl"
HEAD = "suite.json"

Finite = Annotated[float, Strict(), AllowInfNan(False)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ItemRecord:
    """One attempt at one item of a suite.

    score: in [0, 1]. cluster: what the item shares with others, so that they are not
    independent: a scenario, a question; the item itself by default. stop: how the attempt
    ended, in the suite's own word. infra names a technical failure, of an endpoint or of a
    simulated user, and infra_message describes it; the score of such a record means nothing.
    input_tokens and output_tokens: of the model, 0 if unknown.
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

    @property
    def passed(self) -> bool:
        """Whether the item counts as solved."""
        return self.score >= PASS_SCORE

    @property
    def group(self) -> str:
        """What is drawn together when intervals are computed."""
        return self.cluster or self.item

    def line(self) -> dict[str, Any]:
        """The record as a line of ``items.jsonl``."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_line(cls, value: Mapping[str, Any]) -> Self:
        """Read a line; ValueError if it cannot be used."""
        _require_format(value)
        return cls(**{name: found for name, found in value.items() if name != "format"})

    @classmethod
    def of_trajectory(
        cls, record: TrajectoryRecord, suite: str = "bfcl", category: str | None = None, cluster: str | None = None
    ) -> Self:
        """A rollout of a task as an attempt at an item of a suite that our service plays.

        category: the record's own by default. cluster: its scenario by default.
        """
        return cls(
            suite=suite,
            category=category or record.data_source,
            item=record.task_id,
            sample=record.sample,
            score=record.score,
            cluster=cluster or f"scenario_{record.scenario}",
            stop=record.stop,
            infra=record.infra,
            infra_message=record.infra_message,
            input_tokens=record.tokens_in or 0,
            output_tokens=record.tokens,
            seconds=record.seconds,
        )


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SuiteHead:
    """How the items of a folder were measured.

    package and version: of the official tool, empty for our own. data_hash: of the suite's
    tasks. settings: what results depend on. skipped: a sentence for each category that was
    not played. official: figures in [0, 1] that the official tool computed, by its own names.
    """

    suite: str
    model: str
    package: str = ""
    version: str = ""
    data_hash: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    official: dict[str, Finite] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read ``suite.json``; ValueError with one sentence if it cannot be used."""
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            _require_format(value)
            return cls(**{name: found for name, found in value.items() if name != "format"})
        except (ValidationError, json.JSONDecodeError, AttributeError, TypeError) as error:
            raise ValueError(f"{path} is not the head of a suite's results ({error}): evaluate again.") from error


class SuiteResults(NamedTuple):
    """A suite's folder as it is read."""

    heads: tuple[SuiteHead, ...]
    items: tuple[ItemRecord, ...]
    bad: tuple[BadLine, ...] = ()


def holds_results(folder: Path | str) -> bool:
    """Whether a folder, or folders right below it, hold results of suites."""
    return bool(_folders(Path(folder)))


def write_results(folder: Path, head: SuiteHead, items: Sequence[ItemRecord]) -> None:
    """Write both files, each completely or not at all."""
    write_jsonl((item.line() for item in items), folder / ITEMS)
    write_json({"format": FORMAT, **asdict(head)}, folder / HEAD)


def read_results(folder: Path | str) -> SuiteResults:
    """Read the results of a folder, or of all suites right below it (`seal evaluate paper`).

    ValueError if there are none.
    """
    folders = _folders(Path(folder))
    if not folders:
        raise ValueError(f"{folder} holds no results of a suite ({HEAD} and {ITEMS}): name the --out of an evaluation.")
    heads, items, bad = [], [], []
    for each in folders:
        heads.append(SuiteHead.read(each / HEAD))
        found, broken = read_records(each / ITEMS, ItemRecord.from_line)
        items += found
        bad += broken
    return SuiteResults(tuple(heads), tuple(items), tuple(bad))


def _folders(folder: Path) -> list[Path]:
    """The folder, and those right below it, that hold both files."""
    return [path.parent for path in (folder / HEAD, *sorted(folder.glob(f"*/{HEAD}"))) if _is_pair(path)]


def _is_pair(head: Path) -> bool:
    return head.is_file() and (head.parent / ITEMS).is_file()


def _require_format(value: Mapping[str, Any]) -> None:
    if value.get("format") != FORMAT:
        raise ValueError(f"has format {value.get('format')!r} instead of {FORMAT}: read it with the SEAL that wrote it")
