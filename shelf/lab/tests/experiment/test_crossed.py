"""Intervals over seeds and scenarios hold the truth as often as they say."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shelf.lab.experiment.crossed import Components, crossed_mean, seed_interval

ONE = np.array(["base@1"])


def drawn(rng, seeds, scenarios, between_seeds, between_scenarios, rest, truth=0.0):
    parts = (
        rng.normal(0, between_seeds, (seeds, 1)),
        rng.normal(0, between_scenarios, (1, scenarios)),
        rng.normal(0, rest, (seeds, scenarios)),
    )
    return truth + sum(parts)


def mean_of(scores, scenarios=None, strata=None, **more):
    n = scores.shape[1]
    scenarios = np.arange(n).astype(str) if scenarios is None else np.asarray(scenarios)
    return crossed_mean(scores, scenarios, ONE.repeat(n) if strata is None else np.asarray(strata), **more)


@pytest.mark.parametrize("seeds", [3, 8])
@pytest.mark.parametrize("scenarios", [40, 100])
@pytest.mark.parametrize("parts", [(0.03, 0.0, 0.4), (0.06, 0.1, 0.4), (0.06, 0.0, 0.1), (0.0, 0.2, 0.3)])
def test_intervals_cover_the_truth(seeds, scenarios, parts):
    rng = np.random.default_rng([seeds, scenarios])
    found = [mean_of(drawn(rng, seeds, scenarios, *parts, truth=0.05)) for _ in range(600)]
    coverage = np.mean([each.low <= 0.05 <= each.high for each in found])
    # 600 draws: a standard error of .009. Few seeds that hardly differ make the interval too wide, not too narrow.
    assert 0.92 <= coverage <= 1.0
    if parts[0] and parts[0] ** 2 > parts[2] ** 2 / scenarios:
        assert coverage <= 0.98
    rejected = np.mean([each.p < 0.05 for each in (mean_of(drawn(rng, seeds, scenarios, *parts)) for _ in range(300))])
    assert rejected <= 0.09


def test_ignoring_the_seeds_would_be_wrong():
    rng = np.random.default_rng(0)
    draws = [drawn(rng, 5, 100, 0.06, 0.0, 0.1) for _ in range(300)]
    naive = [stats.ttest_1samp(each.mean(axis=0), 0).pvalue for each in draws]
    assert np.mean(np.array(naive) < 0.05) > 0.5
    assert np.mean([mean_of(each).p < 0.05 for each in draws]) < 0.1


@given(st.integers(2, 6), st.integers(2, 12), st.integers(0, 2**32 - 1))
@settings(max_examples=40)
def test_the_variance_is_the_two_way_analysis_of_variance(seeds, scenarios, draw):
    scores = drawn(np.random.default_rng(draw), seeds, scenarios, 1.0, 1.0, 1.0)
    by_seed, by_scenario, all_ = scores.mean(axis=1), scores.mean(axis=0), scores.mean()
    ms_seed = scenarios * ((by_seed - all_) ** 2).sum() / (seeds - 1)
    ms_scenario = seeds * ((by_scenario - all_) ** 2).sum() / (scenarios - 1)
    rest = scores - by_seed[:, None] - by_scenario + all_
    ms_rest = (rest**2).sum() / ((seeds - 1) * (scenarios - 1))
    expected = max(ms_seed, ms_scenario, ms_seed + ms_scenario - ms_rest) / (seeds * scenarios)
    found = mean_of(scores)
    assert found.value == pytest.approx(all_)
    assert found.error**2 == pytest.approx(expected)
    assert found.components.rest**2 == pytest.approx(ms_rest)


def test_one_seed_gives_the_t_interval_of_its_tasks():
    scores = np.random.default_rng(1).normal(0.1, 0.3, (1, 60))
    found, expected = mean_of(scores), stats.ttest_1samp(scores[0], 0)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert found.p == pytest.approx(expected.pvalue) and found.components is None


def test_variants_of_a_scenario_count_once():
    base = drawn(np.random.default_rng(2), 5, 30, 0.05, 0.1, 0.2)
    once = mean_of(base)
    four = mean_of(np.tile(base, 4), np.tile(np.arange(30).astype(str), 4))
    assert (four.low, four.high) == pytest.approx((once.low, once.high)) and four.scenarios == 30


def test_sources_are_averaged_and_tasks_weighted_within_them():
    scores = np.array([[1.0, 1.0, 1.0, 0.0, 0.0]] * 2)
    strata = ["base", "base", "base", "miss_func", "miss_func"]
    assert mean_of(scores, strata=strata).value == pytest.approx(0.5)
    weighted = mean_of(np.array([[1.0, 0.0], [1.0, 0.0]]), weights=np.array([3.0, 1.0]))
    assert weighted.value == pytest.approx(0.75)


def test_equal_arms_have_an_interval_that_still_doubts():
    found = mean_of(np.zeros((5, 100)))
    assert (found.value, found.p) == (0.0, 1.0)
    assert found.low < 0 < found.high < 0.05


def test_one_scenario_is_refused():
    with pytest.raises(ValueError, match="at least two scenarios, and there is one"):
        mean_of(np.zeros((3, 4)), np.zeros(4).astype(str))
    with pytest.raises(ValueError, match="at least two scenarios, and there is one of a data source"):
        mean_of(np.eye(3, 4), np.arange(4).astype(str), np.array(["a", "b", "b", "b"]))


def test_components_give_the_error_that_they_were_drawn_with():
    true = Components(0.05, 0.1, 0.3)
    rng = np.random.default_rng(3)
    errors = [mean_of(drawn(rng, 20, 200, *true)).error for _ in range(100)]
    assert np.mean(np.square(errors)) == pytest.approx(true.error(20, 200) ** 2, rel=0.15)


def test_a_band_is_students_interval_over_seeds():
    means = np.array([0.1, 0.2, 0.4])
    assert seed_interval(means) == pytest.approx(tuple(stats.ttest_1samp(means, 0).confidence_interval()))
    assert np.isnan(seed_interval(means[:1])).all()
