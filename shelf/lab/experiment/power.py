"""Power: which difference a design detects, and which design detects a difference."""

import bisect
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from shelf.lab.experiment.crossed import Components, crossed_mean
from shelf.lab.experiment.scores import Panel

ALPHA = 0.05
POWER = 0.8
MOST_SEEDS = 1000
_GRID = (np.arange(2000) + 0.5) / 2000


class Pilot(NamedTuple):
    """What pilot runs tell about the difference of two arms: its components, scenarios, and where they are from."""

    components: Components
    scenarios: int
    origin: str


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: the family-wise error rate stays at its level."""
    order = np.argsort(p_values, kind="stable")
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def power_of(difference: float, error: float, freedom: float, alpha: float = ALPHA) -> float:
    """The probability that a two-sided t-test finds a difference with this standard error.

    The noncentral t distribution, as the mean over the estimated error: scipy's own gives
    nan for few degrees of freedom and strict levels.
    """
    if error <= 0:
        return 1.0 if difference else alpha
    needed = float(stats.t.ppf(1 - alpha / 2, freedom)) * np.sqrt(stats.chi2.ppf(_GRID, freedom) / freedom)
    shift = abs(difference) / error
    return float((stats.norm.sf(needed - shift) + stats.norm.cdf(-needed - shift)).mean())


def detectable(error: float, freedom: float, alpha: float = ALPHA, power: float = POWER) -> float:
    """The smallest difference that is found with this probability."""
    if error <= 0:
        return 0.0
    most = error
    while power_of(most, error, freedom, alpha) < power:
        most *= 2
    return float(optimize.brentq(lambda d: power_of(d, error, freedom, alpha) - power, 0.0, most))


def seeds_needed(pilot: Pilot, difference: float, scenarios: int, alpha: float, power: float) -> int | None:
    """The fewest seeds per arm that find a difference over this number of scenarios; None if no number does."""

    def enough(seeds: int) -> bool:
        error, freedom = pilot.components.error(seeds, scenarios), pilot.components.freedom(seeds, scenarios)
        return power_of(difference, error, freedom, alpha) >= power

    if not enough(MOST_SEEDS):
        return None
    return bisect.bisect_left(range(MOST_SEEDS), True, lo=2, key=enough)


def pooled(components: Sequence[Components]) -> Components:
    """The components with the mean variances of several comparisons."""
    variances = np.mean(np.square(np.array(components)), axis=0)
    return Components(*map(float, np.sqrt(variances)))


def from_one_arm(panel: Panel) -> Components | None:
    """The components of the difference of two arms that do nothing to each other, from the seeds of one; None for one.

    Variances between seeds and of the rest are doubled; what makes a task hard cancels.
    """
    found = crossed_mean(panel.values, panel.scenarios, panel.sources, panel.weights).components
    return found and Components(math.sqrt(2) * found.seed, 0.0, math.sqrt(2) * found.rest)
