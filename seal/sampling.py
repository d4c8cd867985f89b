"""Drawing prompts where the gradient is.

GRPO learns nothing from a group whose rollouts all have the same reward. Each task has a
Beta posterior of its pass rate p, from the outcomes of its rollouts with older ones
discounted, and prompts are drawn in proportion to a power of the expected variance of an
outcome, E[p (1 - p)]: it is largest for tasks that are passed half of the time, and large for
tasks of which little is known. A share of the draws is uniform, and no data source falls below
a floor. Everything follows from the seed, the step and the outcomes, so a resumed run
draws what the uninterrupted one would have drawn.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from seal.settings.sampling import SamplingSettings

Task = tuple[str, int]
"""A task's id and its number of user turns (-1: all)."""


class Candidate(NamedTuple):
    """A row that can be drawn."""

    task: Task
    source: str


class Outcome(NamedTuple):
    """One rollout: its task, the data source, the terminal reward in [0, 1], and its weight of inclusion.

    The weight (`seal.pilot`) counts for the source, over whose tasks it averages; a task's own
    posterior takes every rollout as one.
    """

    task: Task
    source: str
    reward: float
    weight: float = 1.0


class Draw(NamedTuple):
    """A drawn row: its number among the candidates, the expected pass rate and variance, the share of the draws."""

    index: int
    mean: float
    variance: float
    share: float


@dataclass(frozen=True)
class Counts:
    """Discounted passes and failures, as of a step."""

    passed: float = 0.0
    failed: float = 0.0
    step: int = 0

    def at(self, step: int, half_life: float) -> Self:
        """The same outcomes, discounted to a later step."""
        kept = 0.5 ** ((step - self.step) / half_life)
        return type(self)(self.passed * kept, self.failed * kept, step)

    def plus(self, reward: float, weight: float = 1.0) -> Self:
        """With one more outcome; a reward between 0 and 1 counts in part as both."""
        reward = min(1.0, max(0.0, reward))
        return type(self)(self.passed + weight * reward, self.failed + weight - weight * reward, self.step)


@dataclass(frozen=True)
class History:
    """What the rollouts so far say of each task and of each data source. Immutable."""

    tasks: Mapping[Task, Counts]
    sources: Mapping[str, Counts]

    @classmethod
    def empty(cls) -> Self:
        """Before the first rollout."""
        return cls({}, {})

    def updated(self, step: int, outcomes: Iterable[Outcome], half_life: float) -> Self:
        """With the outcomes of a step, in any order."""
        tasks, sources = dict(self.tasks), dict(self.sources)
        for outcome in sorted(outcomes):
            for counts, key, weight in ((tasks, outcome.task, 1.0), (sources, outcome.source, outcome.weight)):
                counts[key] = counts.get(key, Counts(step=step)).at(step, half_life).plus(outcome.reward, weight)
        return type(self)(tasks, sources)

    def to_json(self) -> dict[str, Any]:
        """JSON values; the inverse of :meth:`from_json`."""
        return {
            "tasks": [[*task, each.passed, each.failed, each.step] for task, each in sorted(self.tasks.items())],
            "sources": [[source, each.passed, each.failed, each.step] for source, each in sorted(self.sources.items())],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Rebuild a history."""
        tasks = {(task, turns): Counts(*counts) for task, turns, *counts in value["tasks"]}
        return cls(tasks, {source: Counts(*counts) for source, *counts in value["sources"]})


def posterior(candidate: Candidate, history: History, step: int, settings: SamplingSettings) -> tuple[float, float]:
    """Alpha and beta of the Beta posterior of a task's pass rate before a step.

    The prior has the mean of the data source (itself under a uniform prior) and weighs
    `settings.prior` rollouts.
    """
    source = history.sources.get(candidate.source, Counts()).at(step, settings.half_life)
    own = history.tasks.get(candidate.task, Counts()).at(step, settings.half_life)
    mean = (1 + source.passed) / (2 + source.passed + source.failed)
    return settings.prior * mean + own.passed, settings.prior * (1 - mean) + own.failed


def expected_variance(alpha: float, beta: float) -> float:
    """E[p (1 - p)] of a Beta distribution, at most 1/4."""
    total = alpha + beta
    return alpha * beta / (total * (total + 1))


def draw(
    candidates: Sequence[Candidate], history: History, step: int, count: int, seed: int, settings: SamplingSettings
) -> list[Draw]:
    """Different rows for a step, in the order of drawing; ValueError if there are fewer candidates than `count`."""
    if count > len(candidates):
        raise ValueError(f"A step draws {count} tasks, but there are only {len(candidates)}.")
    beliefs = [posterior(candidate, history, step, settings) for candidate in candidates]
    variances = [expected_variance(alpha, beta) for alpha, beta in beliefs]
    values = [variance**settings.sharpness for variance in variances]
    total, uniform = sum(values), 1 / len(candidates)
    shares = [(1 - settings.explore) * value / total + settings.explore * uniform for value in values]
    shares = _with_floor(shares, [candidate.source for candidate in candidates], settings.floor)
    rng = random.Random(f"sampling/{seed}/{step}")
    # Without replacement in proportion to the shares: the shortest of exponential waiting times (Efraimidis 2006).
    waits = [-math.log(1 - rng.random()) / share for share in shares]
    first = sorted(range(len(candidates)), key=waits.__getitem__)[:count]
    return [Draw(index, beliefs[index][0] / sum(beliefs[index]), variances[index], shares[index]) for index in first]


def _with_floor(shares: Sequence[float], sources: Sequence[str], floor: float) -> list[float]:
    """The shares, with each source raised to its least share at the cost of the others."""
    least = {source: floor * sources.count(source) / len(sources) for source in dict.fromkeys(sources)}
    sums = dict.fromkeys(least, 0.0)
    for share, source in zip(shares, sources, strict=True):
        sums[source] += share
    factors, raised = dict.fromkeys(least, 1.0), set()
    # Lowering the others can push one of them below its own floor: at most one round per source.
    while low := [
        name for name in least if name not in raised and sums[name] * factors[name] < least[name] * (1 - 1e-9)
    ]:
        raised.update(low)
        rest = sum(sums[name] for name in least if name not in raised)
        room = 1 - sum(least[name] for name in raised)
        factors = {name: least[name] / sums[name] if name in raised else room / rest for name in least}
    return [share * factors[source] for share, source in zip(shares, sources, strict=True)]
