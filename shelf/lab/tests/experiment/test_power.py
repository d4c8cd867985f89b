"""Holm's correction and power agree with the standard packages and with simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shelf.lab.experiment.effects import detectable, holm, power_of

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


def test_without_an_error_nothing_is_known_of_what_is_detectable():
    assert detectable(0.0, 10.0) is None


@pytest.mark.parametrize("freedom", [1.0, 2.3, 4.0, 40.0])
@pytest.mark.parametrize("alpha", [0.05, 0.005, 0.0005])
def test_the_detectable_difference_has_the_power_that_was_asked_for(freedom, alpha):
    found = detectable(0.02, freedom, alpha)
    assert power_of(found, 0.02, freedom, alpha) == pytest.approx(0.8, abs=1e-6)
