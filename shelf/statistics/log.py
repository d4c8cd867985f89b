"""Logs of trajectories, one line per task and sample: of validations, of training steps and of the public release.

An unusable line is kept as a BadLine and reported; no line is dropped silently.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from seal.method.diagnosis.categories import BENCHMARK, environment_of
from seal.method.labels import BROKEN, CORRECT_ABSTENTION, PASS
from seal.records.benchmark import parse_task_id
from seal.records.folder import RunFolder
from seal.records.format import require_format, upgrade
from seal.records.source import UNSCORED, parse_data_source
from seal.records.trajectory import TrajectoryRecord
from seal.system.jsonl import BadLine, Line, read_jsonl, read_records, step_files
from seal.system.text import enumeration

MET = frozenset({PASS, CORRECT_ABSTENTION})
"""The labels of turns that met the verifier."""

SETTINGS = "settings.json"
"""The file in which an evaluation's folder says what its results depend on."""
REPLACED = "replaced"
"""A field of SETTINGS: what the endpoint turned out not to accept; not a user's setting, so a resume ignores it."""


def has_verdict(line: TrajectoryRecord) -> bool:
    """True if a rollout has a verdict: infrastructure did not lose it, and its file gives a reward."""
    return line.infra is None and environment_of(line.category) != UNSCORED


def judged_turns(line: TrajectoryRecord) -> int:
    """The number of user turns for which a rollout shows whether they met the verifier."""
    return max(0, line.turns - sum(label in BROKEN for label in line.labels))


@dataclass(frozen=True)
class Log:
    """The usable and the bad lines of one or several files."""

    lines: tuple[TrajectoryRecord, ...]
    bad: tuple[BadLine, ...] = ()

    def without_bad(self) -> tuple[TrajectoryRecord, ...]:
        """The lines; ValueError if there are bad ones."""
        if self.bad:
            raise ValueError(f"{len(self.bad)} bad lines in the log; the first is {self.bad[0]}")
        return self.lines

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The training steps of the lines, ascending."""
        return tuple(sorted({line.step for line in self.lines}))

    def at(self, step: int) -> tuple[TrajectoryRecord, ...]:
        """The lines of one step; ValueError lists the existing steps."""
        found = tuple(line for line in self.lines if line.step == step)
        if not found:
            raise ValueError(f"There is no step {step}: the log has {enumeration(self.steps)}.")
        return found

    @classmethod
    def joined(cls, logs: Iterable[Self]) -> Self:
        """The lines of several logs as one."""
        logs = tuple(logs)
        return cls(tuple(line for log in logs for line in log.lines), tuple(line for log in logs for line in log.bad))


def read_log(path: Path | str, samples: dict[tuple, set[int]] | None = None) -> Log:
    """Read one ``<step>.jsonl``; its name gives the step of lines without one. samples: those seen in other files."""
    path = Path(path)
    if not path.is_file():
        problem = "is not a regular file" if path.exists() else "does not exist"
        raise ValueError(f"{path} {problem}: name a validation log (<step>.jsonl).")
    step = int(path.stem) if path.stem.isdigit() else None
    samples = {} if samples is None else samples
    log = Log(*read_records(path, lambda value: read_sample(value, step, samples)))
    empty = BadLine(path, 1, "the file holds no line: its writer was interrupted; remove it, or play it again")
    return log if log.lines or log.bad else Log((), (empty,))


def read_validation_dir(folder: Path | str) -> Log:
    """Read every ``<step>.jsonl`` of a folder, or of a run's ``validation_log``; ValueError if there is none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: name a run or its validation_log folder.")
    if RunFolder(folder).validations.is_dir():
        folder = RunFolder(folder).validations
    files, samples = step_files(folder), {}
    if not files:
        raise ValueError(f"{folder} holds no <step>.jsonl: no validation or evaluation has ended (trainer.test_freq).")
    log = Log.joined(read_log(path, samples) for _step, path in files)
    if not log.lines:
        raise ValueError(f"{folder} holds no usable line; the first of {len(log.bad)} bad ones is {log.bad[0]}")
    return log


def read_line(value: Mapping[str, Any], file_step: int | None = None) -> tuple[TrajectoryRecord, bool]:
    """The record of a log's line, and whether the line numbers its sample.

    Reads lines of this version and of the public release (input, output, score, step, reward, task_id, data_source).
    file_step: the step of a line without one. ValueError with one sentence for a line that cannot be used.
    """
    value = {key: found for key, found in upgrade(value).items() if found not in (None, "")}
    require_format(value)
    task = value.get("task_id")
    if not isinstance(task, str):
        raise ValueError("has no task_id; the log must name the task of each line")
    category = str(value.get("category", ""))
    if environment_of(category) == BENCHMARK:
        category, _ = parse_task_id(task)
    if "score" not in value and "infra" not in value:
        raise ValueError("has neither a score nor a cause (infra) for having none")
    if value.setdefault("step", file_step) is None:
        raise ValueError("has no step and the file's name gives none (<step>.jsonl)")
    known = {"split": "", "sample": 0, "score": 0.0} | value
    known |= {"category": category, "data_source": _source(value.get("data_source"), category)}
    record = TrajectoryRecord.from_line(known)
    if 0 < record.turns < record.turns_passed:
        raise ValueError(f"has {record.turns_passed} turns that passed, of {record.turns}; correct turns_passed")
    return record, "sample" in value


def read_sample(value: Mapping[str, Any], file_step: int | None, samples: dict[tuple, set[int]]) -> TrajectoryRecord:
    """The record of a log's line, numbered if the line is not; ValueError for a number that `samples` holds already."""
    record, numbered = read_line(value, file_step)
    prompt = (record.group, record.withdrawal)  # a step may train two prompts with the same task
    seen = samples.setdefault((record.step, record.data_source, record.task_id, *prompt), set())
    record = record if numbered else replace(record, sample=len(seen))
    if record.sample in seen:
        place = f"sample {record.sample} of {record.task_id} at step {record.step}"
        raise ValueError(f"repeats {place}; remove one of the two")
    seen.add(record.sample)
    return record


def has_validations(folder: RunFolder) -> bool:
    """Return whether a run has a validation."""
    return bool(step_files(folder.validations))


def values(path: Path) -> Iterator[Mapping[str, Any]]:
    """The usable lines of a log that may not exist."""
    lines = read_jsonl(path) if path.is_file() else ()
    return (line.value for line in lines if isinstance(line, Line))


def read_stages(folder: RunFolder) -> tuple[Mapping[str, Any], ...]:
    """The usable lines of `stages`: a `stage` that began, its `step`, and `of` how many steps (validate: tasks)."""
    return tuple(values(folder.stages))


def planned_steps(stages: Sequence[Mapping[str, Any]]) -> int | None:
    """The number of steps that a run will train, according to its stages; None before the first step."""
    return next((line.get("of") for line in reversed(stages) if line.get("stage") != "validate"), None)


def _source(named: Any, category: str) -> str:
    """The line's data source; if it names no category (as in the release), the line is about a whole task."""
    try:
        found, _ = parse_data_source(str(named))
    except ValueError:
        return category
    if found != category:
        raise ValueError(f"data_source {named!r} contradicts the task id's category {category!r}")
    return str(named)
