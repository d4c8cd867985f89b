"""Holm's correction, and the difference that a comparison detects."""

from collections.abc import Sequence

import numpy as np
from scipy import optimize, stats

ALPHA = 0.05
POWER = 0.8
_GRID = (np.arange(2000) + 0.5) / 2000


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
