"""Validation logs: one line a task and sample, ours and the public release's.

The release writes input, output, score, step, reward, task_id and data_source;
ours adds labels, counts, the stop reason, hashes and, for a rollout that failed
for reasons other than the policy, the cause (``infra``). A line that cannot be
used is kept as a BadLine and reported; none is dropped in silence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env_service.environments.bfcl.splits import parse_task_id
from seal.jsonl import BadLine, read_jsonl, step_files
from seal.labels import CORRECT_ABSTENTION, PASS
from seal.records.source import WHOLE, data_source, parse_data_source

MET = frozenset({PASS, CORRECT_ABSTENTION})
"""The labels of turns that met the verifier."""

PASS_SCORE = 1.0
"""The score of a task that met the verifier; everything below is a failure."""


@dataclass(frozen=True)
class ValidationLine:
    """One rollout of one task; prefix is the number of user turns asked for, WHOLE (-1) for all."""

    task_id: str
    category: str
    scenario: int
    prefix: int
    step: int
    sample: int
    score: float
    labels: tuple[str, ...] = ()
    turns: int | None = None
    turns_passed: int | None = None
    progress: float | None = None
    calls: int | None = None
    errors: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    stop: str | None = None
    infra: str | None = None
    service_hash: str | None = None
    data_hash: str | None = None
    prompt_mode: str | None = None

    @property
    def passed(self) -> bool:
        """True when the whole task met the verifier."""
        return self.score >= PASS_SCORE - 1e-9

    @property
    def data_source(self) -> str:
        """The name under which the line is counted: category, or category@prefix."""
        return data_source(self.category, self.prefix)


@dataclass(frozen=True)
class Log:
    """The usable and the bad lines of one or several files."""

    lines: tuple[ValidationLine, ...]
    bad: tuple[BadLine, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """The training steps at which the log validates, ascending."""
        return tuple(sorted({line.step for line in self.lines}))

    def at(self, step: int) -> tuple[ValidationLine, ...]:
        """The lines of one step; ValueError naming the steps there are."""
        found = tuple(line for line in self.lines if line.step == step)
        if not found:
            raise ValueError(f"There is no step {step}: the log has {', '.join(map(str, self.steps))}.")
        return found


def read_log(path: Path | str) -> Log:
    """Read one ``<step>.jsonl``; the file's name gives the step where a line has none."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} does not exist: name a validation log (<step>.jsonl).")
    step = int(path.stem) if path.stem.isdigit() else None
    lines: list[ValidationLine] = []
    bad: list[BadLine] = []
    samples: dict[tuple[int, str, int], set[int]] = {}
    for entry in read_jsonl(path):
        if isinstance(entry, BadLine):
            bad.append(entry)
            continue
        try:
            line = _parse(entry.value, step, samples)
        except ValueError as error:
            bad.append(entry.bad(str(error)))
            continue
        lines.append(line)
    return Log(tuple(lines), tuple(bad))


def read_validation_dir(folder: Path | str) -> Log:
    """Read every ``<step>.jsonl`` of a folder, or of its ``validation_log`` when a run is named.

    ValueError for a folder without such files.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: name a run or its validation_log folder.")
    if (folder / "validation_log").is_dir():
        folder = folder / "validation_log"
    logs = [read_log(path) for _step, path in step_files(folder)]
    if not logs:
        raise ValueError(f"{folder} holds no <step>.jsonl: has the run validated yet (val_before_train, test_freq)?")
    lines = tuple(line for log in logs for line in log.lines)
    bad = tuple(line for log in logs for line in log.bad)
    if not lines and bad:
        raise ValueError(f"{folder} holds no usable line; the first of {len(bad)} bad ones is {bad[0]}")
    if not lines:
        raise ValueError(f"The logs in {folder} are empty: the validation was interrupted; run it again.")
    return Log(lines, bad)


def _parse(
    value: Mapping[str, Any], file_step: int | None, samples: dict[tuple[int, str, int], set[int]]
) -> ValidationLine:
    task = value.get("task_id")
    if not isinstance(task, str):
        raise ValueError("has no task_id; the log must name the task of each line")
    category, scenario = parse_task_id(task)
    prefix = _prefix(value.get("data_source"), category)
    infra = _text(value, "infra")
    score = _number(value, "score")
    if score is None:
        if infra is None:
            raise ValueError("has neither a score nor a cause (infra) for having none")
        score = 0.0
    step = _whole(value, "step")
    step = file_step if step is None else step
    if step is None:
        raise ValueError("has no step and the file's name gives none (<step>.jsonl)")
    seen = samples.setdefault((step, task, prefix), set())
    sample = _whole(value, "sample")
    sample = len(seen) if sample is None else sample
    if sample in seen:
        raise ValueError(f"repeats sample {sample} of {task} at step {step}; remove one of the two")
    seen.add(sample)
    labels = value.get("labels") or []
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError("labels must be a list of label names, one a turn")
    turns, turns_passed = _turns(value, labels)
    return ValidationLine(
        task_id=task,
        category=category,
        scenario=scenario,
        prefix=prefix,
        step=step,
        sample=sample,
        score=score,
        labels=tuple(labels),
        turns=turns,
        turns_passed=turns_passed,
        progress=_number(value, "progress"),
        calls=_whole(value, "calls"),
        errors=_whole(value, "errors"),
        tokens=_whole(value, "tokens"),
        seconds=_number(value, "seconds"),
        stop=_text(value, "stop"),
        infra=infra,
        service_hash=_text(value, "service_hash"),
        data_hash=_text(value, "data_hash"),
        prompt_mode=_text(value, "prompt_mode"),
    )


def _turns(value: Mapping[str, Any], labels: Sequence[str]) -> tuple[int | None, int | None]:
    """Turns of the task and those that met the verifier, abstentions included.

    From the evidence where a line has it, which holds the turns that were never
    reached too: an episode that ends early must not raise the per-turn rate.
    """
    evidence = value.get("evidence")
    if isinstance(evidence, list) and evidence:
        return len(evidence), sum(label in MET for label in labels)
    return _whole(value, "turns"), _whole(value, "turns_passed")


def _prefix(source: Any, category: str) -> int:
    """The prefix that a data source names; one that is no category (the release's) means whole tasks."""
    if not isinstance(source, str):
        return WHOLE
    try:
        named, prefix = parse_data_source(source)
    except ValueError:
        return WHOLE
    if named != category:
        raise ValueError(f"data_source {source!r} contradicts the task id's category {category!r}")
    return prefix


def _number(value: Mapping[str, Any], key: str) -> float | None:
    number = value.get(key)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
        raise ValueError(f"{key} is {number!r}: expected a finite number")
    return float(number)


def _whole(value: Mapping[str, Any], key: str) -> int | None:
    number = _number(value, key)
    if number is not None and number != int(number):
        raise ValueError(f"{key} is {number!r}: expected a whole number")
    return None if number is None else int(number)


def _text(value: Mapping[str, Any], key: str) -> str | None:
    text = value.get(key)
    return str(text) if text not in (None, "") else None
