"""The delay of answers that benchmarks set."""

import math
import statistics

import pytest

from env_service.episodes import delay


def test_delays_are_log_normal_and_fixed_by_their_place():
    logs = [math.log(delay(0.5, f"episode/{step}")) for step in range(4000)]
    assert statistics.fmean(logs) == pytest.approx(math.log(0.5), abs=0.1)
    assert statistics.stdev(logs) == pytest.approx(1.0, abs=0.1)
    assert delay(0.5, "episode/1") == delay(0.5, "episode/1")


def test_without_a_median_nothing_is_delayed():
    assert delay(0.0, "episode/1") == 0.0
