"""How far into a failed trajectory its advantage reaches."""

from hypothesis import given
from hypothesis import strategies as st

from seal.method.reweighting import reach

turns = st.lists(st.sampled_from(["own", "inherited", None]), min_size=1, max_size=5).map(
    lambda blames: [{"turn": turn, "blame": blame} for turn, blame in enumerate(blames)]
)


@given(turns, st.integers())
def test_the_cut_is_after_the_first_own_failure_and_its_controls_cut_the_same_trajectories(diagnosis, seed):
    found = {credit: reach(diagnosis, credit, str(seed)) for credit in ("whole", "failed", "drawn", "first")}
    own = [turn["turn"] for turn in diagnosis if turn["blame"] == "own"]
    assert found["whole"] is None
    if not own:
        assert set(found.values()) == {None}
    else:
        assert found["failed"] == min(own) and found["first"] == 0
        assert found["drawn"] in range(len(diagnosis))


def test_the_drawn_turn_is_any_of_those_played():
    diagnosis = [{"turn": turn, "blame": "own"} for turn in range(4)]
    assert {reach(diagnosis, "drawn", str(seed)) for seed in range(60)} == set(range(4))
