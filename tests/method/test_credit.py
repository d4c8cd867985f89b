"""How far into a failed trajectory its advantage reaches."""

from hypothesis import given
from hypothesis import strategies as st

from seal.method.reweighting import reach

CREDITS = ("whole", "failed", "drawn", "first")
turns = st.lists(st.sampled_from(["own", "inherited", None]), min_size=1, max_size=5).map(
    lambda blames: [{"turn": turn, "blame": blame} for turn, blame in enumerate(blames)]
)


def evidence(*needed):
    """That of a task whose turns need so many calls."""
    return [{"turn": turn, "expected_calls": calls} for turn, calls in enumerate(needed)]


@given(turns, st.lists(st.integers(0, 2), min_size=5, max_size=5), st.integers())
def test_the_cut_is_after_the_first_own_failure_and_its_controls_cut_the_same_trajectories(diagnosis, needed, seed):
    found = {credit: reach(diagnosis, evidence(*needed), credit, str(seed)) for credit in CREDITS}
    own = [turn["turn"] for turn in diagnosis if turn["blame"] == "own" and needed[turn["turn"]]]
    assert found["whole"] is None
    if not own:
        assert set(found.values()) == {None}
    else:
        assert found["failed"] == min(own) and found["first"] == 0
        assert found["drawn"] in range(len(diagnosis))


def test_the_drawn_turn_is_any_of_those_played():
    diagnosis = [{"turn": turn, "blame": "own"} for turn in range(4)]
    assert {reach(diagnosis, evidence(1, 1, 1, 1), "drawn", str(seed)) for seed in range(60)} == set(range(4))


def test_a_needless_call_does_not_end_the_credit_of_the_turn_that_decides_the_reward():
    """The verdict does not count it: had the second turn passed, so would the task."""
    needless = {"turn": 0, "blame": "own"}
    assert reach([needless, {"turn": 1, "blame": "own"}], evidence(0, 1), "failed", "") == 1
    assert reach([needless, {"turn": 1, "blame": None}], evidence(0, 1), "failed", "") is None
