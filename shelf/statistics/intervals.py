"""Rates with intervals, paired comparisons and repeated sampling, for dependent tasks.

The 800 tasks are 200 scenarios in four variants, and a task may be sampled
several times, so observations of one scenario are not independent. Every
interval and test here therefore counts by cluster (the scenario); with one
observation per cluster, it is the textbook version.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 10_000


class SuccessCount(NamedTuple):
    """`numerator` of `denominator` succeeded: 1 or 0 of 1 for a task, k of n for its turns."""

    cluster: Hashable
    numerator: float
    denominator: float = 1.0


class Estimate(NamedTuple):
    """A rate with its Wilson interval."""

    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class PairedDifference:
    """Mean of b - a over paired tasks, with bootstrap interval, standard error and p-values.

    p_mcnemar is exact, and present if both sides are pass or fail; gained and lost
    are its discordant counts (only b passed, only a passed).
    """

    pairs: int
    mean_a: float
    mean_b: float
    difference: float
    low: float
    high: float
    standard_error: float
    p_bootstrap: float
    gained: int | None
    lost: int | None
    p_mcnemar: float | None


def wilson(rate: float, n: float) -> tuple[float, float]:
    """Wilson's score interval of a rate over n independent observations (n may be fractional)."""
    if n <= 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    centre = rate + z * z / (2 * n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low, high = (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)
    return (0.0 if rate <= 0 else max(0.0, low)), (1.0 if rate >= 1 else min(1.0, high))


def estimate(strata: Sequence[Sequence[SuccessCount]]) -> Estimate | None:
    """The mean over strata of each stratum's rate, clusters spanning strata; None without observations.

    One stratum gives its plain rate; the four categories give the average over
    categories. The interval is Wilson's with the effective number of
    observations rate x (1 - rate) / variance, with the variance linearised and
    summed by cluster, and at most the number of observations. A stratum of one
    cluster does not show how clusters differ, and counts as one observation. At 0
    and 1 the variance says nothing, so the strata's numbers of clusters are used.
    """
    strata = [stratum for stratum in strata if sum(each.denominator for each in stratum) > 0]
    if not strata:
        return None
    influence: dict[Hashable, float] = defaultdict(float)
    sums = [(sum(each.numerator for each in stratum), sum(each.denominator for each in stratum)) for stratum in strata]
    n, rate = sum(total for _, total in sums), sum(met / total for met, total in sums) / len(strata)
    bernoulli, drawn = rate * (1 - rate), [{each.cluster for each in stratum} for stratum in strata]
    for stratum, (met, total), clusters in zip(strata, sums, drawn, strict=True):
        for each in stratum:
            influence[each.cluster] += (each.numerator - met / total * each.denominator) / (total * len(strata))
        if len(clusters) == 1:
            influence[stratum[0].cluster] += math.sqrt(bernoulli) / len(strata)
    variance = sum(value * value for value in influence.values())
    most = min(len(influence), len(strata) ** 2 / sum(1 / len(clusters) for clusters in drawn))
    effective = min(n, bernoulli / variance if variance > 1e-15 and bernoulli > 1e-15 else most)
    return Estimate(rate, *wilson(rate, effective))


def mcnemar(gained: int, lost: int) -> float:
    """The exact two-sided McNemar p-value for discordant pairs."""
    pairs = gained + lost
    return min(1.0, 2 * sum(math.comb(pairs, k) for k in range(min(gained, lost) + 1)) / 2**pairs)


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """The unbiased estimate that at least one of k samples passes, from `passed` of `samples`, at least k."""
    return 1.0 - math.comb(samples - passed, k) / math.comb(samples, k)


def pass_hat_k(samples: int, passed: int, k: int) -> float:
    """The unbiased estimate that k samples all pass (tau2's pass^k), from `passed` of `samples`, at least k."""
    return math.comb(passed, k) / math.comb(samples, k)


def paired_difference(
    a: Mapping[Hashable, float],
    b: Mapping[Hashable, float],
    clusters: Mapping[Hashable, Hashable],
    strata: Mapping[Hashable, Hashable],
    weights: Mapping[Hashable, float] | None = None,
) -> PairedDifference:
    """Compare the means of the tasks present on both sides.

    a, b: score of each task in [0, 1] (a mean over samples or seeds);
    clusters: which tasks are drawn together (each task's scenario); strata: the
    categories, within which the mean is taken first; weights: that of each task
    in its stratum (its number of turns), equal by default. ValueError without a
    common task.
    """
    shared = sorted(set(a) & set(b), key=str)
    if not shared:
        raise ValueError("The two sides have no task in common: compare runs over the same tasks.")
    scores = np.array([[a[task], b[task]] for task in shared])
    # Sorted as texts, so that a cluster's draws do not depend on the order of the tasks.
    rows, row = np.unique([str(clusters[task]) for task in shared], return_inverse=True)
    columns, column = np.unique([str(strata[task]) for task in shared], return_inverse=True)
    weight = np.array([1.0 if weights is None else weights[task] for task in shared])
    # Sums by cluster and stratum: of the weights, and of the weighted scores of a, of b and of b - a.
    counts, sums_a, sums_b, sums = np.zeros((4, len(rows), len(columns)))
    for cells, values in ((counts, 1.0), (sums_a, scores[:, 0]), (sums_b, scores[:, 1]), (sums, np.diff(scores)[:, 0])):
        np.add.at(cells, (row, column), weight * values)
    mean_a, mean_b, observed = (
        float((cells.sum(axis=0) / counts.sum(axis=0)).mean()) for cells in (sums_a, sums_b, sums)
    )
    differences = _resampled(sums, counts)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(differences, [tail, 1 - tail])
    below, above = int((differences <= 0).sum()), int((differences >= 0).sum())
    differing = int((abs(sums) > 1e-12).any(axis=1).sum())
    least = 2.0 ** (1 - differing)  # the smallest p of a sign flip test over the clusters that differ
    binary = bool(np.isin(scores, (0.0, 1.0)).all())
    gained = int((scores[:, 1] > scores[:, 0]).sum()) if binary else None
    lost = int((scores[:, 1] < scores[:, 0]).sum()) if binary else None
    return PairedDifference(
        pairs=len(shared),
        mean_a=mean_a,
        mean_b=mean_b,
        difference=observed,
        low=float(low),
        high=float(high),
        standard_error=float(differences.std(ddof=1)),
        p_bootstrap=min(1.0, max(least, 2 * (min(below, above) + 1) / (RESAMPLES + 1))),
        gained=gained,
        lost=lost,
        p_mcnemar=mcnemar(gained, lost) if gained is not None and lost is not None else None,
    )


def _resampled(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The mean over strata (columns) in each draw of clusters (rows) with replacement."""
    chances = np.full(len(sums), 1 / len(sums))
    # As floats: numpy multiplies matrices of integers without BLAS.
    draws = np.random.default_rng(0).multinomial(len(sums), chances, size=RESAMPLES).astype(float)
    drawn = draws @ counts
    # A draw without any task of a stratum says nothing about that stratum: the mean is over the others.
    return (draws @ sums / np.where(drawn > 0, drawn, 1)).sum(axis=1) / (drawn > 0).sum(axis=1)
