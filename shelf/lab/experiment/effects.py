"""The effects of an experiment: each comparison on each outcome, corrected for their number."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from shelf.lab.experiment.crossed import CrossedMean, crossed_mean, seed_interval
from shelf.lab.experiment.design import Contrast, Design, OutcomeMeasure
from shelf.lab.experiment.records import RunResult
from shelf.lab.experiment.scores import Panel, panel, panels_by_step

ALPHA = 0.05
POWER = 0.8
_GRID = (np.arange(2000) + 0.5) / 2000

Runs = Mapping[str, Mapping[int, RunResult]]
"""The finished runs by arm and seed."""


@dataclass(frozen=True)
class Effect:
    """One comparison on one outcome.

    difference: arm - against. p_holm: its p-value, corrected for the comparisons of its family. detectable: the
    difference found with 80 % power at Holm's strictest level, None if the error is 0. left_out: tasks a run lacks.
    """

    contrast: Contrast
    outcome: OutcomeMeasure
    seeds: tuple[int, ...]
    arm: float
    against: float
    difference: CrossedMean
    p_holm: float
    detectable: float | None
    left_out: int


class Missing(NamedTuple):
    """A comparison that cannot be made yet, and why."""

    contrast: Contrast
    outcome: OutcomeMeasure
    reason: str


class Curve(NamedTuple):
    """An arm's mean at each step, with the band of its seeds on these tasks (nan for one seed)."""

    arm: str
    steps: tuple[int, ...]
    means: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def by_arm(design: Design, results: Iterable[RunResult]) -> Runs:
    """The runs of a design by arm and seed, in its order."""
    found: dict[str, dict[int, RunResult]] = {arm: {} for arm in design.arms}
    for result in sorted(results, key=lambda result: result.seed):
        found[result.arm][result.seed] = result
    return found


def family(
    contrasts: Sequence[Contrast], outcomes: Sequence[OutcomeMeasure], runs: Runs
) -> tuple[tuple[Effect, ...], tuple[Missing, ...]]:
    """The comparisons on some outcomes, corrected together, and those that cannot be made.

    The correction counts all planned comparisons, including the missing ones.
    """
    effects: list[Effect] = []
    missing: list[Missing] = []
    planned = len(contrasts) * len(outcomes)
    for outcome in outcomes:
        for contrast in contrasts:
            try:
                effects.append(_effect(contrast, outcome, runs, planned))
            except ValueError as error:
                missing.append(Missing(contrast, outcome, str(error)))
    adjusted = holm([*(effect.difference.p for effect in effects), *(1.0 for _each in missing)])
    return tuple(replace(e, p_holm=p) for e, p in zip(effects, adjusted, strict=False)), tuple(missing)


def levels(outcome: OutcomeMeasure, runs: Runs) -> dict[str, CrossedMean]:
    """The score of each arm that has finished runs with this outcome: the mean over its seeds and tasks."""
    found = {}
    for arm, seeds in runs.items():
        with suppress(ValueError):
            mean = _mean(panel(list(seeds.values()), outcome))
            found[arm] = replace(mean, low=max(0.0, mean.low), high=min(1.0, mean.high))
    return found


def curves(outcome: OutcomeMeasure, runs: Runs) -> tuple[Curve, ...]:
    """The learning curve of each arm that has finished runs with this outcome's set."""
    found = []
    for arm, seeds in runs.items():
        with suppress(ValueError):
            panels = panels_by_step(list(seeds.values()), outcome)
            bands = [seed_interval(each.means) for each in panels.values()]
            means = tuple(float(each.means.mean()) for each in panels.values())
            found.append(Curve(arm, tuple(panels), means, *(tuple(ends) for ends in zip(*bands, strict=True))))
    return tuple(found)


def _effect(contrast: Contrast, outcome: OutcomeMeasure, runs: Runs, planned: int) -> Effect:
    arm, against = runs[contrast.arm], runs[contrast.against]
    seeds = tuple(seed for seed in arm if seed in against)
    if not seeds:
        raise ValueError("no seed has finished in both arms")
    both = panel([side[seed] for side in (arm, against) for seed in seeds], outcome)
    sides = np.split(both.values, 2)
    difference = _mean(both._replace(values=np.subtract(*sides)))
    found = detectable(difference.error, difference.freedom, 0.05 / planned)
    means = (float(both._replace(values=side).means.mean()) for side in sides)
    return Effect(contrast, outcome, seeds, *means, difference, difference.p, found, both.left_out)


def _mean(scores: Panel) -> CrossedMean:
    return crossed_mean(scores.values, scores.scenarios, scores.sources, scores.weights)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the given order: they control the family-wise error rate."""
    order = np.argsort(p_values, kind="stable")
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def power_of(difference: float, error: float, freedom: float, alpha: float = ALPHA) -> float:
    """The probability that a two-sided t-test finds a difference with this standard error.

    Computes the noncentral t distribution as a mean over the estimated error, because scipy's own
    gives nan for few degrees of freedom and strict levels.
    """
    if error <= 0:
        return 1.0 if difference else alpha
    needed = float(stats.t.ppf(1 - alpha / 2, freedom)) * np.sqrt(stats.chi2.ppf(_GRID, freedom) / freedom)
    shift = abs(difference) / error
    return float((stats.norm.sf(needed - shift) + stats.norm.cdf(-needed - shift)).mean())


def detectable(error: float, freedom: float, alpha: float = ALPHA, power: float = POWER) -> float | None:
    """The smallest difference that is found with this probability; None if the error is 0, which says nothing."""
    if error <= 0:
        return None
    most = error
    while power_of(most, error, freedom, alpha) < power:
        most *= 2
    return float(optimize.brentq(lambda d: power_of(d, error, freedom, alpha) - power, 0.0, most))
