"""What the training of a run cost: rollouts, tokens in and out, wall time and device hours."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from seal.records.folder import RunFolder
from seal.records.step import StepRecord, read_steps
from seal.system.jsonl import BadLine, read_jsonl

HOUR = 3600.0


@dataclass(frozen=True)
class Devices:
    """How many devices a run had, by the step after which a launch went on; kind: "cuda", "cpu" or "" if unknown."""

    by_launch: tuple[tuple[int, int], ...] = ()
    kind: str = ""

    def at(self, step: int) -> int | None:
        """The devices of a training step; None if unknown."""
        counts = [count for after, count in self.by_launch if after < step]
        return counts[-1] if counts else None

    @classmethod
    def of(cls, run: RunFolder) -> Self:
        """What the launches of a run say; nothing for a folder that is not a run."""
        by_launch, kind = [], ""
        for line in read_jsonl(run.launches) if run.launches.is_file() else ():
            trainer = {} if isinstance(line, BadLine) else line.value.get("config", {}).get("trainer", {})
            counts = trainer.get("n_gpus_per_node"), trainer.get("nnodes")
            if all(isinstance(count, int) for count in counts):
                by_launch.append((int(line.value.get("step", 0)), counts[0] * counts[1]))
                kind = str(trainer.get("device", kind))
        return cls(tuple(by_launch), kind)


@dataclass(frozen=True)
class Cost:
    """The cost of training steps, updates included, validations and saving left out; None where logs do not say."""

    rollouts: int = 0
    """Trajectories played."""
    tokens_in: int | None = 0
    """Tokens of the prompts of all requests, as an endpoint counts them."""
    tokens_out: int | None = 0
    """Sampled tokens."""
    seconds: float | None = 0.0
    """Wall time."""
    device_seconds: float | None = 0.0
    """Wall time of each device, added up."""

    @classmethod
    def of(cls, steps: Iterable[StepRecord], devices: Devices) -> Self:
        """The cost of these steps; a figure that one of them lacks is unknown for all."""
        rows = []
        for step in steps:
            seconds, count = step.total_seconds or None, devices.at(step.step)
            device_seconds = None if seconds is None or count is None else seconds * count
            rows.append((step.trajectories, step.tokens.get("in"), step.tokens.get("out"), seconds, device_seconds))
        return cls(*(None if None in column else sum(column) for column in zip(*rows, strict=True))) if rows else cls()

    def cells(self, kind: str = "") -> list[tuple[str, str]]:
        """The cost as pairs of a name and a text, what is unknown left out; kind: that of the devices."""
        amounts = (("rollouts", self.rollouts), ("tokens in", self.tokens_in), ("tokens out", self.tokens_out))
        cells = [(name, f"{amount:,}") for name, amount in amounts if amount]
        if self.seconds:
            cells.append(("wall time", _duration(self.seconds)))
        if self.device_seconds:
            cells.append((f"{kind or 'device'} hours", f"{self.device_seconds / HOUR:.3g}"))
        return cells


def training_cost(run: RunFolder, last: int) -> tuple[Cost, str]:
    """What the training up to and including the step `last` cost, and the kind of its devices ("" if unknown)."""
    steps = read_steps(run.steps)[0] if run.steps.is_file() else ()
    devices = Devices.of(run)
    return Cost.of([step for step in steps if step.step <= last], devices), devices.kind


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
