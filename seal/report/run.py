"""A run's logs as figures: the training steps and what they add up to."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seal.jsonl import BadLine, Line, read_jsonl
from seal.records.validation import Log, read_validation_dir

STEPS = Path("seal_log") / "steps.jsonl"
PICTURE = "report.png"
QUARTER = 4


@dataclass(frozen=True)
class Step:
    """One training step as logged; seconds by stage are wall time, seal_seconds is SEAL's own part."""

    step: int
    reward: float | None
    spread: int
    labels: Mapping[str, int]
    rho: Mapping[str, float]
    w: tuple[float, float, float] | None
    omega: str | None
    cues: tuple[str, ...]
    events: tuple[Mapping[str, Any], ...]
    seconds: Mapping[str, float]
    seal_seconds: float
    logp_diff_max: float | None
    infra: Mapping[str, int]

    @property
    def total_seconds(self) -> float:
        """Wall time of the step: verl's own total, else the sum of its stages."""
        return self.seconds.get("step", sum(self.seconds.values()))

    @property
    def shares(self) -> dict[str, float]:
        """Share of each label among the step's labelled turns."""
        return shares(self.labels)


@dataclass(frozen=True)
class Mean:
    """A mean over steps with its standard error (None from a single step)."""

    value: float
    standard_error: float | None
    steps: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean | None:
        """The mean of the values; None without any."""
        if not values:
            return None
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return cls(statistics.fmean(values), error, len(values))


@dataclass(frozen=True)
class Quarters:
    """The first and the last quarter of the steps, at least one step each."""

    first: tuple[Step, ...]
    last: tuple[Step, ...]

    @property
    def rewards(self) -> tuple[Mean | None, Mean | None]:
        """Mean training reward of both."""
        first, last = (
            Mean.of([step.reward for step in steps if step.reward is not None]) for steps in (self.first, self.last)
        )
        return first, last

    @property
    def reward_change(self) -> tuple[float, float | None] | None:
        """Last minus first, and the standard error of that difference."""
        first, last = self.rewards
        if first is None or last is None:
            return None
        errors = first.standard_error, last.standard_error
        error = None if None in errors else math.hypot(*errors)
        return last.value - first.value, error

    @property
    def labels(self) -> tuple[dict[str, float], dict[str, float]]:
        """Label shares of both, pooled over their steps."""
        first, last = (
            shares(sum((Counter(step.labels) for step in steps), Counter())) for steps in (self.first, self.last)
        )
        return first, last


@dataclass(frozen=True)
class Run:
    """The logs of one run; validation is None before its first validation."""

    folder: Path
    steps: tuple[Step, ...]
    validation: Log | None
    bad: tuple[BadLine, ...]

    @property
    def quarters(self) -> Quarters | None:
        """First and last quarter of the steps; None for fewer than two steps."""
        if len(self.steps) < 2:
            return None
        size = max(1, len(self.steps) // QUARTER)
        return Quarters(self.steps[:size], self.steps[-size:])

    @property
    def checkpoint(self) -> Path | None:
        """The checkpoint with the highest step."""
        found = [
            (int(path.name.removeprefix("global_step_")), path)
            for path in (self.folder / "checkpoints").glob("global_step_*")
            if path.name.removeprefix("global_step_").isdigit()
        ]
        return max(found)[1] if found else None

    @property
    def seal_share(self) -> float | None:
        """Share of the steps' wall time that SEAL itself takes in the trainer."""
        total = sum(step.total_seconds for step in self.steps)
        return sum(step.seal_seconds for step in self.steps) / total if total else None

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label seen in training, most frequent first."""
        counts: Counter[str] = Counter()
        for step in self.steps:
            counts.update(step.labels)
        return tuple(label for label, count in counts.most_common() if count)

    @property
    def cues(self) -> dict[str, tuple[int, ...]]:
        """The steps at which each cue was active, cues in order of appearance."""
        active: dict[str, list[int]] = {}
        for step in self.steps:
            for cue in step.cues:
                active.setdefault(cue, []).append(step.step)
        return {cue: tuple(steps) for cue, steps in active.items()}

    def cause(self, cue: str) -> Mapping[str, float]:
        """The figures of C_t that first turned a cue on; empty where it was on from the start."""
        for step in self.steps:
            for event in step.events:
                if event.get("cue") == cue and event.get("on"):
                    return event.get("figures", {})
        return {}


def read_run(folder: Path | str) -> Run:
    """Read a run's logs, also one that has not validated or not trained yet.

    Of a step logged twice (a run that was resumed) the later line counts.
    ValueError for a folder that has neither log.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: name a run (experiments/NAME).")
    bad: list[BadLine] = []
    steps: dict[int, Step] = {}
    if (folder / STEPS).is_file():
        for line in read_jsonl(folder / STEPS):
            parsed = line if isinstance(line, BadLine) else _step(line)
            if isinstance(parsed, BadLine):
                bad.append(parsed)
            else:
                steps[parsed.step] = parsed
    validated = any((folder / "validation_log").glob("*.jsonl"))
    if not steps and not validated:
        raise ValueError(f"{folder} holds neither {STEPS} nor validation_log/*.jsonl: has the run started?")
    validation = read_validation_dir(folder) if validated else None
    return Run(folder, tuple(steps[number] for number in sorted(steps)), validation, tuple(bad))


def shares(counts: Mapping[str, int]) -> dict[str, float]:
    """Counts over their sum."""
    total = sum(counts.values())
    return {label: count / total for label, count in counts.items()} if total else {}


def ranges(steps: Sequence[int]) -> str:
    """Steps as text: ``3-12, 15``."""
    parts: list[list[int]] = []
    for step in steps:
        if parts and step == parts[-1][1] + 1:
            parts[-1][1] = step
        else:
            parts.append([step, step])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in parts)


def _step(line: Line) -> Step | BadLine:
    value = line.value
    try:
        w, omega = value.get("w"), value.get("omega")
        return Step(
            step=int(value["step"]),
            reward=value["reward_mean"],
            spread=int(value.get("groups_with_spread", 0)),
            labels=value.get("label_counts", {}),
            rho=value.get("rho", {}),
            w=(w["mean"], w["min"], w["max"]) if w else None,
            omega=f"{omega['version']}" if omega else None,
            cues=tuple(omega["cues"]) if omega else (),
            events=tuple(value.get("events", ())),
            seconds=value.get("seconds", {}),
            seal_seconds=float(value.get("seal_seconds", 0.0)),
            logp_diff_max=value.get("logp_diff_max"),
            infra=value.get("infra", {}),
        )
    except (KeyError, TypeError, ValueError) as error:
        return line.bad(f"not a step's line ({error!r}); remove it")
