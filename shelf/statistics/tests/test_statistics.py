"""Intervals and tests agree with the textbook where it applies, and widen for dependent tasks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shelf.statistics.intervals import SuccessCount, estimate, mcnemar, paired_difference, pass_at_k, wilson
from shelf.statistics.tables import with_difference


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
@settings(max_examples=60)
def test_independent_tasks_get_wilsons_interval(drawn):
    n, k = drawn
    found = estimate([[SuccessCount(i, float(i < k)) for i in range(n)]])
    expected = stats.binomtest(k, n).proportion_ci(method="wilson")
    assert found.rate == pytest.approx(k / n)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_identical_variants_of_a_scenario_count_once():
    one = estimate([[SuccessCount(i, float(i < 14)) for i in range(100)]])
    four = estimate([[SuccessCount(i, float(i < 14)) for i in range(100)] for _ in range(4)])
    assert (four.low, four.high) == pytest.approx((one.low, one.high))


def test_repeated_samples_of_few_tasks_do_not_narrow_beyond_the_tasks():
    found = estimate([[SuccessCount(task, float(task < 3)) for task in range(10) for _ in range(50)]])
    assert (found.low, found.high) == pytest.approx(wilson(0.3, 10))


def test_the_average_weighs_categories_equally():
    found = estimate([[SuccessCount(i, 1.0) for i in range(10)], [SuccessCount(i, 0.0) for i in range(90)]])
    assert found.rate == pytest.approx(0.5)


def passes(name, count, of, samples=1):
    return [SuccessCount((name, i), float(i < count)) for i in range(of) for _ in range(samples)]


@pytest.mark.parametrize(
    ("strata", "effective"),
    [
        ([passes("a", 1, 1), passes("b", 50, 100)], 0.1875 / (0.1875 / 4 + 0.25 / 100 / 4)),
        ([passes("a", 1, 1, samples=8), passes("b", 50, 100)], 0.1875 / (0.1875 / 4 + 0.25 / 100 / 4)),
        ([passes("a", 1, 1), passes("b", 100, 100)], 4 / (1 / 1 + 1 / 100)),
        ([passes("a", 0, 20), passes("b", 0, 140)], 4 / (1 / 20 + 1 / 140)),
        ([passes("a", 0, 20, samples=4), passes("b", 0, 20, samples=4)], 40),
        ([passes("a", 1, 1), passes("a", 0, 1), passes("a", 1, 1), passes("a", 1, 1)], 1),
        ([passes("a", 5, 50), passes("b", 25, 50)], 100),
    ],
)
def test_an_average_is_as_sure_as_its_least_sure_category(strata, effective):
    found = estimate(strata)
    assert (found.low, found.high) == pytest.approx(wilson(found.rate, effective))


def test_nothing_observed_gives_nothing():
    assert estimate([[]]) is None
    assert estimate([[SuccessCount(0, 0.0, 0.0)]]) is None


def test_mcnemar_is_the_exact_binomial_test():
    assert mcnemar(10, 2) == pytest.approx(0.03857421875)
    assert mcnemar(0, 0) == 1.0


@pytest.mark.parametrize(("n", "c", "k", "expected"), [(8, 0, 4, 0.0), (8, 8, 1, 1.0), (8, 1, 4, 0.5), (4, 1, 4, 1.0)])
def test_pass_at_k(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected)


def test_paired_difference_finds_a_gain_and_its_discordant_tasks():
    before = {task: float(task < 14) for task in range(100)}
    after = {task: float(4 <= task < 30) for task in range(100)}
    own = {task: task for task in before}
    found = paired_difference(before, after, own, dict.fromkeys(before, "base"))
    assert (found.difference, found.gained, found.lost) == (pytest.approx(0.12), 16, 4)
    assert found.p_mcnemar == pytest.approx(stats.binomtest(16, 20).pvalue)
    assert 0.0 < found.low < 0.12 < found.high
    expected_error = ((0.2 - 0.12**2) / 100) ** 0.5
    assert found.standard_error == pytest.approx(expected_error, rel=0.05)


def test_equal_sides_differ_by_nothing():
    side = {task: float(task % 3 == 0) for task in range(60)}
    found = paired_difference(side, dict(side), {t: t for t in side}, dict.fromkeys(side, "base"))
    assert (found.difference, found.p_bootstrap, found.p_mcnemar) == (0.0, 1.0, 1.0)


@pytest.mark.parametrize(("tasks", "p"), [(1, 1.0), (3, 0.25)])
def test_a_few_tasks_that_agree_prove_little(tasks, p):
    before, after = dict.fromkeys(range(tasks), 0.0), dict.fromkeys(range(tasks), 1.0)
    found = paired_difference(before, after, {t: t for t in before}, dict.fromkeys(before, "base"))
    assert found.p_bootstrap == p and with_difference(found) == "+100.0 [-]"


@pytest.mark.parametrize("won", [0, 1, 3, 5, 10])
def test_the_tasks_that_agree_lend_the_others_no_certainty(won):
    before = dict.fromkeys(range(100), 0.0)
    found = paired_difference(before, {t: float(t < won) for t in before}, {t: t for t in before}, before)
    assert found.p_bootstrap == pytest.approx(mcnemar(won, 0))


def test_a_category_of_one_task_gives_an_average_no_certainty():
    before = dict.fromkeys(range(101), 0.0)
    strata = {task: "one" if task == 100 else "many" for task in before}
    found = paired_difference(before, before | {100: 1.0}, {t: t for t in before}, strata)
    assert (found.difference, found.low, found.high, found.p_bootstrap) == (0.5, 0.0, 0.5, 1.0)


def test_dependent_variants_widen_the_interval():
    tasks = [(scenario, variant) for scenario in range(50) for variant in range(4)]
    before = dict.fromkeys(tasks, 0.0)
    after = {task: float(task[0] < 10) for task in tasks}
    strata = {task: task[1] for task in tasks}
    together = paired_difference(before, after, {task: task[0] for task in tasks}, strata)
    apart = paired_difference(before, after, {task: task for task in tasks}, strata)
    assert together.standard_error > 1.7 * apart.standard_error
    assert together == paired_difference(before, after, {task: task[0] for task in tasks}, strata)


def test_sides_without_a_common_task_are_refused():
    with pytest.raises(ValueError, match="no task in common"):
        paired_difference({1: 1.0}, {2: 1.0}, {1: 1, 2: 2}, {1: "a", 2: "a"})


def test_weighted_tasks_give_the_difference_of_the_ratios():
    turns = {1: 2.0, 2: 6.0}
    before, after = {1: 0.5, 2: 1 / 6}, {1: 1.0, 2: 0.5}
    found = paired_difference(before, after, {1: 1, 2: 2}, {1: "a", 2: "a"}, turns)
    assert (found.mean_a, found.mean_b) == (pytest.approx(2 / 8), pytest.approx(5 / 8))
    assert found.difference == pytest.approx(3 / 8)
