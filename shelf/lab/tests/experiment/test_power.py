"""Holm's correction and power agree with the standard packages and with simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shelf.lab.experiment.crossed import Components, crossed_mean
from shelf.lab.experiment.power import Pilot, detectable, from_one_arm, holm, pooled, power_of, seeds_needed
from shelf.lab.experiment.scores import Panel

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    # statsmodels 0.15.0: multipletests(p_values, method="holm")[1]
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.2, 0.0004, 0.049, 0.051, 0.0123], [0.2, 0.002, 0.147, 0.147, 0.0492]),
        ([0.5], [0.5]),
        ([0.02, 0.02, 0.9, 1.0, 0.0], [0.08, 0.08, 1.0, 1.0, 0.0]),
        (
            [0.06, 0.242, 0.068, 0.0008, 0.328, 0.953, 0.0004, 0.239, 0.0002, 0.003],
            [0.36, 0.956, 0.36, 0.0064, 0.956, 0.956, 0.0036, 0.956, 0.002, 0.021],
        ),
    ],
)
def test_holm_gives_what_statsmodels_gives(p_values, adjusted):
    assert holm(p_values) == pytest.approx(adjusted, abs=1e-12)


@given(P_VALUES)
def test_holm_lies_between_no_correction_and_bonferroni_and_keeps_the_order(p_values):
    adjusted = holm(p_values)
    for p, corrected in zip(p_values, adjusted, strict=True):
        assert p <= corrected <= min(1.0, len(p_values) * p) + 1e-12
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()


@pytest.mark.parametrize(("shift", "freedom"), [(0.0, 10.0), (1.0, 8.0), (2.5, 30.0), (4.0, 99.0)])
def test_power_is_that_of_the_noncentral_t(shift, freedom):
    critical = stats.t.ppf(0.975, freedom)
    expected = stats.nct.sf(critical, freedom, shift) + stats.nct.cdf(-critical, freedom, shift)
    assert power_of(shift * 0.02, 0.02, freedom) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("freedom", [1.0, 2.3, 4.0, 40.0])
@pytest.mark.parametrize("alpha", [0.05, 0.005, 0.0005])
def test_the_detectable_difference_has_the_power_that_was_asked_for(freedom, alpha):
    found = detectable(0.02, freedom, alpha)
    assert power_of(found, 0.02, freedom, alpha) == pytest.approx(0.8, abs=1e-6)


def test_the_planned_power_is_the_simulated_one():
    true, seeds, scenarios = Components(0.04, 0.05, 0.3), 6, 80
    error, freedom = true.error(seeds, scenarios), true.freedom(seeds, scenarios)
    difference = detectable(error, freedom)
    rng = np.random.default_rng(0)
    names, strata = np.arange(scenarios).astype(str), np.full(scenarios, "base@1")
    found = 0
    for _ in range(600):
        scores = difference + rng.normal(0, true.seed, (seeds, 1)) + rng.normal(0, true.scenario, (1, scenarios))
        scores = scores + rng.normal(0, true.rest, (seeds, scenarios))
        found += crossed_mean(scores, names, strata).p < 0.05
    assert found / 600 == pytest.approx(0.8, abs=0.06)


def test_seeds_needed_are_the_fewest_that_suffice():
    pilot = Pilot(Components(0.06, 0.05, 0.3), 100, "a test")
    seeds = seeds_needed(pilot, 0.05, 100, 0.05, 0.8)
    parts = pilot.components
    enough, fewer = (power_of(0.05, parts.error(n, 100), parts.freedom(n, 100)) for n in (seeds, seeds - 1))
    assert enough >= 0.8 > fewer
    assert seeds_needed(pilot, 0.001, 100, 0.05, 0.8) is None, "more seeds do not help where the tasks differ"


def test_components_are_pooled_as_variances():
    assert pooled([Components(0.0, 0.3, 1.0), Components(0.2, 0.4, 1.0)]) == pytest.approx((0.02**0.5, 0.125**0.5, 1.0))


def test_seeds_of_one_arm_tell_how_two_equal_arms_would_differ():
    rng = np.random.default_rng(4)
    ease = rng.beta(0.6, 2, 100)
    arms = [np.clip(ease + rng.normal(0, 0.05, (40, 1)), 0, 1) for _ in range(2)]
    arms = [rng.binomial(8, chances) / 8 for chances in arms]
    names, strata = np.arange(100).astype(str), np.full(100, "base@1")
    one = from_one_arm(Panel(arms[0], names, strata, np.ones(100), 0))
    both = crossed_mean(arms[0] - arms[1], names, strata).components
    assert one.seed == pytest.approx(both.seed, rel=0.35)
    assert one.rest == pytest.approx(both.rest, rel=0.1)
