"""What rollouts and training steps cost: tokens in and out, wall time, device hours, and their price.

Tokens in are those of the prompts of all requests, as an endpoint counts them. The wall
time of rollouts is the time in which at least one of them was under way, so that an
interruption costs nothing; that of a training step is its own, updates included.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from seal.records.folder import RunFolder
from seal.records.step import StepRecord
from seal.records.trajectory import TrajectoryRecord, count_tokens
from seal.system.jsonl import BadLine, read_jsonl

HOUR = 3600.0


@dataclass(frozen=True)
class Cost:
    """What something cost; None where the logs do not say. seconds: wall time; devices: the time of each, added up."""

    rollouts: int = 0
    tokens_in: int | None = 0
    tokens_out: int | None = 0
    seconds: float | None = 0.0
    device_seconds: float | None = 0.0

    def __add__(self, other: Self) -> Self:
        """Both together: unknown where one is."""
        pairs = {name: (mine, getattr(other, name)) for name, mine in vars(self).items()}
        return type(self)(**{name: None if None in pair else sum(pair) for name, pair in pairs.items()})

    @property
    def device_hours(self) -> float | None:
        """Hours of one device."""
        return None if self.device_seconds is None else self.device_seconds / HOUR

    def price(self, per_hour: float | None) -> float | None:
        """What the device hours cost at a price per hour of one device."""
        return None if per_hour is None or self.device_hours is None else per_hour * self.device_hours

    def record(self, per_hour: float | None = None) -> dict[str, Any]:
        """The cost as one flat record."""
        own = {name: value for name, value in asdict(self).items() if name != "device_seconds"}
        return {**own, "device_hours": self.device_hours, "price": self.price(per_hour)}


@dataclass(frozen=True)
class Devices:
    """How many devices a run had, by the step after which a launch went on; kind: "cuda" or "cpu"."""

    by_launch: tuple[tuple[int, int], ...] = ()
    kind: str = ""

    def at(self, step: int) -> int | None:
        """The devices of a training step, or of a validation after it; None if unknown."""
        found = [count for after, count in self.by_launch if after < max(step, 1)]
        return found[-1] if found else None

    @classmethod
    def of(cls, run: RunFolder) -> Self:
        """What the launches of a run say; nothing for a folder that is not a run."""
        if not run.launches.is_file():
            return cls()
        found, kind = [], ""
        for line in read_jsonl(run.launches):
            trainer = {} if isinstance(line, BadLine) else line.value.get("config", {}).get("trainer", {})
            counts = trainer.get("n_gpus_per_node"), trainer.get("nnodes")
            if all(isinstance(count, int) for count in counts):
                found.append((int(line.value.get("step", 0)), counts[0] * counts[1]))
                kind = str(trainer.get("device", kind))
        return cls(tuple(found), kind)


def of_rollouts(records: Iterable[TrajectoryRecord], devices: int | None) -> Cost:
    """The cost of some rollouts that ran on this many devices, None if that is unknown."""
    records = tuple(records)
    tokens = count_tokens(records)
    timed = all(record.began for record in records)
    seconds = _covered((record.began, record.began + record.seconds) for record in records) if timed else None
    unknown = seconds is None or devices is None
    counted = tokens["out"] or any(record.infra for record in records) or not records
    return Cost(
        len(records),
        tokens.get("in"),
        tokens["out"] if counted else None,
        seconds,
        None if unknown else seconds * devices,
    )


def of_steps(steps: Sequence[StepRecord], devices: Devices) -> Cost:
    """The cost of some training steps: rollouts and updates, without validations and saving."""
    total = Cost()
    for step in steps:
        count, seconds = devices.at(step.step), step.total_seconds or None
        unknown = seconds is None or count is None
        tokens = step.tokens
        total += Cost(
            step.trajectories, tokens.get("in"), tokens.get("out"), seconds, None if unknown else seconds * count
        )
    return total


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """The length of the union of some spans of time."""
    total, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        total += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return total


def known(costs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether any record of a cost says more than how many rollouts there were."""
    return any(each[name] for each in costs for name in ("tokens_in", "tokens_out", "seconds"))
