"""The delay of answers that benchmarks set."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_service.delay import Delay


@given(st.floats(0.001, 10), st.floats(0, 3), st.text())
def test_a_call_is_always_delayed_by_the_same_finite_time(median, spread, place):
    delay = Delay(median, spread)
    found = delay.seconds(place, "1")
    assert found == delay.seconds(place, "1") and 0 < found < math.inf


def test_delays_are_log_normal():
    logs = [math.log(Delay(0.5, 1.2).seconds("episode", str(i))) for i in range(4000)]
    assert statistics.fmean(logs) == pytest.approx(math.log(0.5), abs=0.1)
    assert statistics.stdev(logs) == pytest.approx(1.2, abs=0.1)
    assert sum(value < math.log(0.5) for value in logs) == pytest.approx(2000, abs=200)


def test_without_a_median_nothing_is_delayed():
    assert Delay(0.0, 5.0).seconds("episode", "1") == 0.0
