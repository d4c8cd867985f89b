"""One finished run of an experiment: everything that its report needs, in one line."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seal.records.format import FORMAT, require_format
from seal.records.step import StepRecord
from seal.records.trajectory import TrajectoryRecord
from seal.system.files import write_text
from seal.system.grouping import grouped
from seal.system.jsonl import BadLine, read_records
from shelf.statistics.log import judged_turns


class TaskScore(NamedTuple):
    """A task's rollouts in one validation: how many passed, of how many; turns that met the verifier, of how many."""

    passed: int
    samples: int
    turns_met: int
    turns: int
    cluster: int | None = None


class StepFigures(NamedTuple):
    """Figures kept of a training step; `w` is the mean weight and `cues` counts the active ones."""

    step: int
    reward: float | None
    w: float | None
    cues: int
    groups_with_spread: int
    seconds: float

    @classmethod
    def of(cls, step: StepRecord) -> Self:
        """The figures of a logged step."""
        w = step.w.mean if step.w else None
        return cls(step.step, step.reward_mean, w, len(step.cues), step.groups_with_spread, step.total_seconds)


@dataclass(frozen=True)
class ValidationScores:
    """One data source at one validation. tasks: by task id. infra: rollouts that do not count in any score."""

    step: int
    source: str
    tasks: dict[str, TaskScore]
    infra: int = 0


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class RunResult:
    """A run of an experiment that has reached its last step.

    configuration: hash of its arm's composed configuration. commit: that of the code (several if a resume had another
    one), with a `+` if files differed. inputs: hash of the model's files and the validation rows. launches: how often
    its training began or was resumed. minutes: wall time of its starts, 0 if unknown. leak: the sentence on validated
    tasks that are trained on, None without any. bad_lines: unreadable log lines. checkpoint_bytes: of the last one,
    before its removal.
    """

    experiment: str
    arm: str
    seed: int
    configuration: str
    commit: str
    inputs: str
    ended: str
    launches: int
    minutes: float
    steps: tuple[StepFigures, ...]
    validations: tuple[ValidationScores, ...]
    prompt_modes: tuple[str, ...]
    data_hashes: tuple[str, ...]
    leak: str | None
    bad_lines: int
    checkpoint_bytes: int

    def line(self) -> str:
        """The result as one line of JSON."""
        return json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False) + "\n"

    @classmethod
    def from_line(cls, value: Any) -> Self:
        """Read the value of a line; ValueError if it cannot be used."""
        require_format(value)
        return cls(**{name: found for name, found in value.items() if name != "format"})

    def write(self, path: Path) -> None:
        """Write the result as a file of one line, atomically."""
        write_text(self.line(), path, flush=True)


def read_results(path: Path) -> tuple[tuple[RunResult, ...], tuple[BadLine, ...]]:
    """The results in a file and its bad lines. Raises OSError if it cannot be opened."""
    return read_records(path, RunResult.from_line)


def validation_scores(lines: Sequence[TrajectoryRecord]) -> tuple[ValidationScores, ...]:
    """The scores of validated trajectories, by step and data source."""
    found = grouped(((line.step or 0, line.data_source), line) for line in lines)
    return tuple(
        ValidationScores(step, source, _by_task(own), sum(line.infra is not None for line in own))
        for (step, source), own in sorted(found.items())
    )


def _by_task(lines: Sequence[TrajectoryRecord]) -> dict[str, TaskScore]:
    scores: dict[str, TaskScore] = {}
    for line in lines:
        if line.infra is None:
            was = scores.get(line.task_id, TaskScore(0, 0, 0, 0))
            scores[line.task_id] = TaskScore(
                was.passed + line.passed,
                was.samples + 1,
                was.turns_met + line.turns_passed,
                was.turns + judged_turns(line),
                line.cluster,
            )
    return scores
