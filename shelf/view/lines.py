"""A trajectory's line as the index keeps it: figures and labels, without the dialogue."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from seal.records.trajectory import TrajectoryRecord
from shelf.statistics.log import read_line

_LARGE = ("input", "output", "evidence")


@dataclass(frozen=True)
class TurnRow:
    """One labelled turn: its position from 0, label, blame, rule, and the tools that it called or needed."""

    turn: int
    label: str
    blame: str | None
    rule: str | None
    tools: tuple[str, ...]


@dataclass(frozen=True)
class IndexedLine:
    """A usable line: its record without dialogue and evidence, and its turns."""

    record: TrajectoryRecord
    turns: tuple[TurnRow, ...]


def parse(raw: bytes) -> Any:
    """The JSON value of a line; ValueError if it is none. NaN, which orjson refuses, is read as Python writes it."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            return json.loads(raw)
        except RecursionError:
            raise ValueError("nested too deeply") from None


def index_line(raw: bytes, step: int | None, whole: bool = True) -> IndexedLine:
    """Read a line for the index; ValueError says what is wrong with it.

    step: that of a line without one. whole: whether a line break ends it.
    """
    try:
        value = parse(raw)
    except ValueError as error:
        cut = "" if whole else " (cut short: the writer was interrupted)"
        raise ValueError(f"not valid JSON{cut}: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__} where an object is expected")
    evidence = value.get("evidence")
    lean = {name: content for name, content in value.items() if name not in _LARGE}
    if "format" not in value and isinstance(evidence, list):
        lean["evidence"] = [{} for _ in evidence]  # earlier versions count a task's turns by its evidence
    try:
        record, _ = read_line(lean, step)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    return IndexedLine(record, _turns(record, evidence if isinstance(evidence, list) else ()))


def _turns(record: TrajectoryRecord, evidence: Any) -> tuple[TurnRow, ...]:
    diagnoses = {turn["turn"]: turn for turn in record.diagnosis if isinstance(turn.get("turn"), int)}
    rows = []
    for position, label in enumerate(record.labels):
        diagnosis: Mapping[str, Any] = diagnoses.get(position, {})
        seen = evidence[position] if position < len(evidence) else {}
        rows.append(TurnRow(position, label, diagnosis.get("blame"), diagnosis.get("rule"), tools(seen)))
    return tuple(rows)


def tools(evidence: Any) -> tuple[str, ...]:
    """The tools that a turn called or needed, each once; () for evidence without any."""
    if not isinstance(evidence, Mapping):
        return ()
    called = [call["name"] for action in evidence.get("actions") or () for call in action.get("calls") or ()]
    return tuple(dict.fromkeys(map(str, [*called, *(evidence.get("needed") or ())])))
