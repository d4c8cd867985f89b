"""The controls: what they change, what they leave, and that a seed fixes them."""

from collections import Counter

import pytest

from seal.diagnosis.profile import Profile, Trajectory
from seal.diagnosis.sources import SOURCES, relabel

BATCH = [
    ("pass", "state_mismatch"),
    ("missing_tool_call",),
    ("pass", "pass", "spurious_tool_call"),
    ("checker_error", "pass"),
    (),
]
PROFILE = Profile.empty().updated(1, [Trajectory("a", "base", ("pass", "pass", "pass", "missing_tool_call"), 0.0)] * 5)


def test_the_verifier_changes_nothing():
    assert relabel(BATCH, "verifier", 0, 1, PROFILE) == BATCH


@pytest.mark.parametrize("source", SOURCES)
def test_seed_and_step_fix_the_draw(source):
    assert relabel(BATCH, source, 3, 7, PROFILE) == relabel(BATCH, source, 3, 7, PROFILE)


@pytest.mark.parametrize("source", SOURCES)
def test_excluded_labels_stay_where_they_are(source):
    assert relabel(BATCH, source, 0, 1, PROFILE)[3][0] == "checker_error"


def test_constant_keeps_lengths():
    found = relabel(BATCH, "constant", 0, 1, PROFILE, constant="pass")
    assert found == [("pass",) * 2, ("pass",), ("pass",) * 3, ("checker_error", "pass"), ()]


def test_random_follows_the_running_distribution():
    many = [("state_mismatch",) * 4] * 500
    drawn = Counter(z for labels in relabel(many, "random", 0, 1, PROFILE) for z in labels)
    assert set(drawn) == {"pass", "missing_tool_call"}
    assert drawn["pass"] / 2000 == pytest.approx(0.75, abs=0.05)
    assert {len(labels) for labels in relabel(many, "random", 0, 1, PROFILE)} == {4}


def test_random_draws_from_the_batch_before_anything_was_seen():
    found = relabel([("pass", "pass")] * 3, "random", 0, 1, Profile.empty())
    assert found == [("pass", "pass")] * 3
    assert relabel([("checker_error",)], "random", 0, 1, Profile.empty()) == [("checker_error",)]


def test_shuffled_permutes_among_trajectories():
    many = [("pass",) * (index % 3) + ("state_mismatch",) for index in range(60)]
    found = relabel(many, "shuffled", 0, 1, PROFILE)
    assert Counter(found) == Counter(many) and found != many
    assert relabel(many, "shuffled", 0, 2, PROFILE) != found


def test_an_unknown_source_is_named():
    with pytest.raises(ValueError, match="'oracle'; choose one of: verifier"):
        relabel(BATCH, "oracle", 0, 1, PROFILE)
