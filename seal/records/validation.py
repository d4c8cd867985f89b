"""Logs of trajectories, one line per task and sample: of validations, of training steps and of the public release.

A line that cannot be used is kept as a BadLine and reported; none is dropped silently.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from seal.records.folder import RunFolder
from seal.records.source import WHOLE, averaged, parse_data_source
from seal.records.trajectory import TrajectoryRecord, read_line
from seal.system.jsonl import BadLine, read_records, step_files


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
        """The lines of one step; ValueError naming the steps there are."""
        found = tuple(line for line in self.lines if line.step == step)
        if not found:
            raise ValueError(f"There is no step {step}: the log has {', '.join(map(str, self.steps))}.")
        return found

    @classmethod
    def joined(cls, logs: Iterable[Self]) -> Self:
        """The lines of several logs as one."""
        logs = tuple(logs)
        return cls(tuple(line for log in logs for line in log.lines), tuple(line for log in logs for line in log.bad))


def read_log(path: Path | str) -> Log:
    """Read one ``<step>.jsonl``; the file's name gives the step of a line without one."""
    path = Path(path)
    if not path.is_file():
        problem = "is not a regular file" if path.exists() else "does not exist"
        raise ValueError(f"{path} {problem}: name a validation log (<step>.jsonl).")
    step = int(path.stem) if path.stem.isdigit() else None
    samples: dict[tuple[int | None, str, int, str | None], set[int]] = {}

    def parse(value: Mapping[str, Any]) -> TrajectoryRecord:
        record, numbered = read_line(value, step)
        seen = samples.setdefault((record.step, *record.task, record.withdrawn), set())
        record = record if numbered else replace(record, sample=len(seen))
        if record.sample in seen:
            place = f"sample {record.sample} of {record.task_id} at step {record.step}"
            raise ValueError(f"repeats {place}; remove one of the two")
        seen.add(record.sample)
        return record

    return Log(*read_records(path, parse))


def read_validation_dir(folder: Path | str) -> Log:
    """Read every ``<step>.jsonl`` of a folder, or of its ``validation_log`` if a run is named.

    ValueError for a folder without such files.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: name a run or its validation_log folder.")
    if RunFolder(folder).validations.is_dir():
        folder = RunFolder(folder).validations
    files = step_files(folder)
    if not files:
        raise ValueError(f"{folder} holds no <step>.jsonl: has the run validated yet (val_before_train, test_freq)?")
    log = Log.joined(read_log(path) for _step, path in files)
    if not log.lines and log.bad:
        raise ValueError(f"{folder} holds no usable line; the first of {len(log.bad)} bad ones is {log.bad[0]}")
    if not log.lines:
        raise ValueError(f"The logs in {folder} are empty: the validation was interrupted; run it again.")
    return log


def validation_averages(records: Sequence[TrajectoryRecord]) -> tuple[float, float] | None:
    """Pass shares averaged over categories: of whole tasks, and of prefixes of tasks; 0 if there are none.

    As in every table, the averages cover the benchmark's categories if there are any, else
    those of synthesised tasks. Trajectories that infrastructure failed are left out; None if
    nothing else is there.
    """
    shares: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for record in records:
        if record.infra is None:
            shares[parse_data_source(record.data_source)].append(record.passed)
    if not shares:
        return None
    whole = {source: passed for source, passed in shares.items() if source[1] == WHOLE}
    prefixes = {source: passed for source, passed in shares.items() if source not in whole}
    return _mean(whole), _mean(prefixes)


def environment_averages(records: Sequence[TrajectoryRecord]) -> dict[str, float]:
    """The pass share of whole tasks by environment, averaged over its categories; {} with a single environment."""
    by_environment: dict[str, list[TrajectoryRecord]] = defaultdict(list)
    for record in records:
        if record.infra is None and record.prefix == WHOLE:
            by_environment[record.environment].append(record)
    if len(by_environment) < 2:
        return {}
    return {name: validation_averages(found)[0] for name, found in sorted(by_environment.items())}


def _mean(shares: Mapping[tuple[str, int], list[bool]]) -> float:
    counted = averaged(category for category, _ in shares)
    means = [sum(passed) / len(passed) for (category, _), passed in shares.items() if category in counted]
    return sum(means) / len(means) if means else 0.0
