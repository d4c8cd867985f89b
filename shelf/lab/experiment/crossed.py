"""A mean over seeds x scenarios, with an interval for new seeds and new scenarios.

A cell is the score of one seed on one scenario (or the difference of two arms there). Seeds and scenarios are both
samples: with S seeds and C scenarios, and mean squares between seeds, between scenarios and of the rest,

    V = V_seeds + V_scenarios - V_rest,    V_seeds = MS_seeds / (S C), and so on,

the two-way analysis of variance with random factors, which is also two-way clustering (Cameron, Gelbach and Miller
2011). V is at least its larger part, because a difference of noisy estimates can be too small. Degrees of freedom
follow Satterthwaite, as in the quasi-F of Clark (1973). With one seed only the scenarios count.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from shelf.statistics.intervals import CONFIDENCE

NOTHING = 1e-15


class Components(NamedTuple):
    """Standard deviations of one cell: between seeds, between scenarios, and of the rest (at least 0)."""

    seed: float
    scenario: float
    rest: float

    def error(self, seeds: int, scenarios: int) -> float:
        """The standard error of a mean over this number of seeds and of scenarios."""
        parts = self.seed**2 / seeds, self.scenario**2 / scenarios, self.rest**2 / (seeds * scenarios)
        return math.sqrt(sum(parts))

    def freedom(self, seeds: int, scenarios: int) -> float:
        """Satterthwaite's degrees of freedom of that standard error, as `estimate` would find them."""
        rest = self.rest**2 / (seeds * scenarios)
        by_seed, by_scenario = self.seed**2 / seeds + rest, self.scenario**2 / scenarios + rest
        return _freedom(Variances(by_seed, by_scenario, rest, seeds, scenarios))


class Variances(NamedTuple):
    """The parts of the variance of a mean, each with S seeds and C scenarios."""

    seeds: float
    scenarios: float
    rest: float
    s: int
    c: int

    @property
    def total(self) -> float:
        """V, at least its larger part."""
        if self.s < 2:
            return self.scenarios
        return max(self.seeds, self.scenarios, self.seeds + self.scenarios - self.rest)


@dataclass(frozen=True)
class CrossedMean:
    """A mean with its interval and its two-sided p-value against 0.

    error: standard error. freedom: degrees of freedom of its t distribution. components: None with one seed.
    """

    value: float
    low: float
    high: float
    p: float
    error: float
    freedom: float
    seeds: int
    scenarios: int
    tasks: int
    components: Components | None


def crossed_mean(
    scores: np.ndarray, scenarios: np.ndarray, strata: np.ndarray, weights: np.ndarray | None = None
) -> CrossedMean:
    """The mean of scores over seeds and tasks.

    scores: (S, n), one row per seed and one column per task, without gaps. scenarios: (n,), which tasks are drawn
    together. strata: (n,), the data sources: the mean is taken within each, then over them. weights: (n,), that of each
    task in its stratum (its number of turns), equal by default. ValueError for a stratum of fewer than two scenarios.
    """
    names, code = np.unique(scenarios, return_inverse=True)
    s, n, c, kinds = len(scores), scores.shape[1], len(names), np.unique(strata)
    if (fewest := min((len(np.unique(scenarios[strata == kind])) for kind in kinds), default=0)) < 2:
        few = "is one" if fewest else "are none"
        raise ValueError(f"an interval needs at least two scenarios, and there {few} of a data source")
    weight, centre = np.zeros(n), np.zeros(n)
    given = np.ones(n) if weights is None else weights
    for kind in kinds:
        inside = strata == kind
        shares = given[inside] / given[inside].sum()
        weight[inside] = shares / len(kinds)
        centre[inside] = (scores[:, inside] @ shares).mean()
    value = float((scores * weight).sum() / s)
    # z: how much each scenario adds to the deviation of each seed's mean.
    z = np.zeros((s, c))
    np.add.at(z.T, code, ((scores - centre) * weight).T)
    variances = _variances(z)
    error = math.sqrt(variances.total)
    if error < NOTHING:
        return _constant(value, s, c, n)
    freedom = _freedom(variances)
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom)) * error
    p = 2 * float(stats.t.sf(abs(value) / error, freedom))
    return CrossedMean(value, value - half, value + half, p, error, freedom, s, c, n, _components(variances))


def seed_interval(means: np.ndarray) -> tuple[float, float]:
    """Student's interval of a mean over seeds, for these tasks; (nan, nan) for a single seed."""
    if len(means) < 2:
        return math.nan, math.nan
    error = float(means.std(ddof=1)) / math.sqrt(len(means))
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(means) - 1)) * error
    return float(means.mean()) - half, float(means.mean()) + half


def _variances(z: np.ndarray) -> Variances:
    s, c = z.shape
    by_scenario, by_seed = z.mean(axis=0), z.sum(axis=1)
    scenarios = c / (c - 1) * float(((by_scenario - by_scenario.mean()) ** 2).sum())
    if s < 2:
        return Variances(0.0, scenarios, 0.0, s, c)
    seeds = float((by_seed**2).sum() - s * by_seed.mean() ** 2) / (s * (s - 1))
    rest = z - by_scenario - by_seed[:, None] / c + by_seed.mean() / c
    return Variances(max(0.0, seeds), scenarios, c / (c - 1) * float((rest**2).sum()) / (s * (s - 1)), s, c)


def _freedom(v: Variances) -> float:
    if v.s < 2:
        return v.c - 1
    parts = v.seeds**2 / (v.s - 1) + v.scenarios**2 / (v.c - 1) + v.rest**2 / ((v.s - 1) * (v.c - 1))
    return max(v.total**2 / parts, min(v.s - 1, v.c - 1)) if parts > 0 else v.c - 1


def _components(v: Variances) -> Components | None:
    if v.s < 2:
        return None
    between = max(0.0, v.seeds - v.rest) * v.s, max(0.0, v.scenarios - v.rest) * v.c
    return Components(*map(math.sqrt, between), math.sqrt(v.rest * v.s * v.c))


def _constant(value: float, s: int, c: int, n: int) -> CrossedMean:
    """The mean of equal scores: because no scenario deviated, the share that does in general is bounded."""
    half = 1 - ((1 - CONFIDENCE) / 2) ** (1 / c)
    p = 1.0 if abs(value) < NOTHING else min(1.0, 2 * 0.5**c)
    none = Components(0.0, 0.0, 0.0) if s > 1 else None
    return CrossedMean(value, value - half, value + half, p, 0.0, c - 1, s, c, n, none)
