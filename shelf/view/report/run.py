"""A run's logs as figures: the training steps, their totals, and their cost."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple, Self

from seal.method.interface.cues import EVERYWHERE
from seal.method.interface.evolve import Event
from seal.records.changes import flatten, training_launches
from seal.records.folder import RunFolder
from seal.records.step import StepRecord, read_steps
from seal.records.trajectory import TrajectoryRecord
from seal.system.grouping import grouped
from seal.system.jsonl import BadLine, step_files
from shelf.statistics.log import Log, has_validations, read_log, read_validation_dir

_SECONDS = 3600.0


class Mean(NamedTuple):
    """A mean with its standard error (None for a single value)."""

    value: float
    standard_error: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """The mean of the values; None without any."""
        if not values:
            return None
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return cls(fmean(values), error)

    def __str__(self) -> str:
        """The mean ± its standard error: ``0.492 ± 0.041``."""
        return f"{self.value:.3f}" + (f" ± {self.standard_error:.3f}" if self.standard_error is not None else "")


class Change(NamedTuple):
    """A mean before and after, and the standard error of the difference (None if one side has a single value)."""

    before: float
    after: float
    standard_error: float | None

    @classmethod
    def between(cls, before: Mean | None, after: Mean | None) -> Self | None:
        """The change from one mean to another; None if one is missing."""
        if before is None or after is None:
            return None
        errors = before.standard_error, after.standard_error
        return cls(before.value, after.value, None if None in errors else math.hypot(*errors))

    def __str__(self) -> str:
        """The difference, ± its standard error, also in standard errors: ``+0.105 ± 0.061 (1.7 SE)``."""
        difference = self.after - self.before
        if not self.standard_error:
            return f"{difference:+.3f}"
        ratio = abs(difference) / self.standard_error
        return f"{difference:+.3f} ± {self.standard_error:.3f} ({ratio:.1f} SE)"


class Quarters(NamedTuple):
    """The first and the last quarter of the steps, at least one step each."""

    first: tuple[StepRecord, ...]
    last: tuple[StepRecord, ...]

    @classmethod
    def split(cls, steps: Sequence[StepRecord]) -> Self | None:
        """First and last quarter of the steps; None for fewer than two steps."""
        size = max(1, len(steps) // 4)
        return cls(tuple(steps[:size]), tuple(steps[-size:])) if len(steps) > 1 else None

    def of(self, value: Callable[[StepRecord], float | None]) -> tuple[Mean | None, Mean | None]:
        """The mean of a figure in both quarters, over the steps that have it."""
        first, last = (Mean.of([figure for figure in map(value, steps) if figure is not None]) for steps in self)
        return first, last

    def share(self, label: str) -> tuple[Mean | None, Mean | None]:
        """The mean share of a label among the turns of a step, in both quarters."""
        return self.of(lambda step: step.label_shares.get(label, 0.0) if step.label_counts else None)


def by_task(lines: Iterable[TrajectoryRecord]) -> dict[tuple[str, str], list[TrajectoryRecord]]:
    """The lines by data source and task, without those that do not count (`usable`)."""
    return grouped(((line.data_source, line.task_id), line) for line in lines if line.usable)


def cue_steps(steps: Sequence[StepRecord]) -> dict[str, tuple[int, ...]]:
    """The steps at which each cue was active, cues in order of appearance.

    An environment has the cues of all until its own figures change them; then its cues are named with it.
    """
    own = {cue.rpartition("/")[0] for step in steps for cue in step.cues} - {""}
    active: dict[int, list[str]] = {}
    for step in steps:
        sharing = own - {cue.rpartition("/")[0] for cue in step.cues}
        shared = (f"{scope}/{cue}" for scope in sorted(sharing) for cue in step.cues if "/" not in cue)
        active[step.step] = [*step.cues, *shared]
    names = dict.fromkeys(cue for cues in active.values() for cue in cues)
    return {cue: tuple(step for step, cues in active.items() if cue in cues) for cue in names}


def cue_of(event: Event) -> str:
    """The cue that an event turned on or off, as the steps name it."""
    return event.cue if event.category == EVERYWHERE else f"{event.category}/{event.cue}"


def logged_steps(folder: RunFolder) -> tuple[tuple[StepRecord, ...], tuple[BadLine, ...]]:
    """The training steps of a run, ascending, and the bad lines of their log; nothing before the first step."""
    steps, bad = read_steps(folder.steps) if folder.steps.is_file() else ((), ())
    if steps and steps[0].step == min(training_launches(folder), default=0):
        return steps[1:], bad  # the first one is of the checkpoint of another run, from which this one continues
    return steps, bad


class Rollouts(NamedTuple):
    """The mean rewards of training rollouts that count, and the bad lines of their logs.

    tasks: by data source and task, of each step that played it. plain: by step, of those that saw no cue.
    """

    tasks: dict[tuple[str, str], list[float]]
    plain: dict[int, float]
    bad: list[BadLine]


@dataclass(frozen=True)
class Run:
    """The logs of one run; validation is None before its first validation."""

    folder: RunFolder
    steps: tuple[StepRecord, ...]
    validation: Log | None
    bad: tuple[BadLine, ...]

    @property
    def seal_share(self) -> float | None:
        """The share of the steps' wall time that SEAL itself takes in the trainer."""
        total = sum(step.total_seconds for step in self.steps)
        return sum(step.seal_seconds for step in self.steps) / total if total else None

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Every label seen in training, most frequent first."""
        counts = sum((Counter(step.label_counts) for step in self.steps), Counter())
        return tuple(label for label, count in counts.most_common() if count)

    @cached_property
    def cues(self) -> dict[str, tuple[int, ...]]:
        """The steps at which each cue was active, cues in order of appearance."""
        return cue_steps(self.steps)

    @cached_property
    def rollouts(self) -> Rollouts:
        """What its training rollouts show; only those of one step are held at a time."""
        found = Rollouts({}, {}, [])
        for step, path in step_files(self.folder.trajectories):
            log = read_log(path)
            found.bad.extend(log.bad)
            for task, lines in by_task(log.lines).items():
                found.tasks.setdefault(task, []).append(fmean(line.score for line in lines))
            if scores := [line.score for line in log.lines if line.usable and not line.cues]:
                found.plain[step] = fmean(scores)
        return found


def read_run(folder: Path | str) -> Run:
    """Read the logs of a run, even if it has not validated or not trained yet; ValueError if it has neither log."""
    files = RunFolder(Path(folder))
    if not files.path.is_dir():
        raise ValueError(f"{folder} is not a folder: name a run (experiments/NAME).")
    steps, bad = logged_steps(files)
    if not steps and not has_validations(files):
        raise ValueError(f"{folder} holds neither seal_log/steps.jsonl nor validation_log/*.jsonl: has it started?")
    return Run(files, steps, read_validation_dir(files.path) if has_validations(files) else None, bad)


def practice(rollouts: Rollouts) -> tuple[int, Change] | None:
    """The number of tasks that several steps played, and the change of their mean reward from first to last time.

    The means of first and last steps also differ because other tasks are drawn; this change is paired by task. None if
    fewer than two tasks were repeated.
    """
    pairs = [(means[0], means[-1]) for means in rollouts.tasks.values() if len(means) > 1]
    if len(pairs) < 2:
        return None
    error = stdev(last - first for first, last in pairs) / math.sqrt(len(pairs))
    before, after = map(fmean, zip(*pairs, strict=True))
    return len(pairs), Change(before, after, error)


def ranges(steps: Sequence[int]) -> str:
    """Steps as text: ``3-12, 15``."""
    parts: list[list[int]] = []
    for step in steps:
        if parts and step == parts[-1][1] + 1:
            parts[-1][1] = step
        else:
            parts.append([step, step])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in parts)


def teaching(steps: Sequence[StepRecord]) -> dict[str, Counter[str]]:
    """With a teacher: the sums of each cue's figures over some steps, and its mean lift over their prompts (or nan)."""
    sums: dict[str, Counter[str]] = {}
    for name, row in (item for step in steps for item in step.teaching.items()):
        sums.setdefault(name, Counter()).update(row | {"lift": row.get("lift", 0.0) * row["prompts"]})
    for row in sums.values():
        row["lift"] = row["lift"] / row["prompts"] if row["prompts"] else math.nan
    return sums


def training_cost(run: RunFolder, last: int) -> list[tuple[str, str]]:
    """Return the cost of the training up to and including the step `last`, as names and texts.

    It includes updates, but not validations and saving. Tokens in are those of the prompts of all requests, as an
    endpoint counts them; device hours, given for several devices, are the sum of their wall times. A figure that one
    of the steps lacks is left out.
    """
    launches = list(_launches(run, last))
    steps = [step for step in logged_steps(run)[0] if step.step <= last]
    seconds = [step.total_seconds or None for step in steps]
    devices = [next((count for after, count, _ in launches[::-1] if after < step.step), None) for step in steps]
    hours = [None if None in pair else pair[0] * pair[1] / _SECONDS for pair in zip(seconds, devices, strict=True)]
    hours = hours if any(count != 1 for count in devices) else []
    columns = (
        ("rollouts", [step.trajectories for step in steps], "{:,}".format),
        ("tokens in", [step.tokens.get("in") for step in steps], "{:,}".format),
        ("tokens out", [step.tokens.get("out") for step in steps], "{:,}".format),
        ("wall time", seconds, _duration),
        (f"{launches[-1][2] if launches else 'device'} hours", hours, "{:.3g}".format),
    )
    return [(name, text(sum(values))) for name, values, text in columns if None not in values and sum(values)]


def _launches(run: RunFolder, last: int) -> Iterator[tuple[int, int, str]]:
    """The step after which each launch continued, its number of devices and their kind; nothing without launches."""
    for step, facts in training_launches(run, last).items():
        config = dict(flatten(facts["config"]))
        counts = config.get("trainer.n_gpus_per_node"), config.get("trainer.nnodes")
        if all(isinstance(count, int) for count in counts):
            yield step, counts[0] * counts[1], str(config.get("trainer.device") or "device")


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
