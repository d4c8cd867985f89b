"""Which failures count: `seal.diagnosis.blame`."""

from hypothesis import given
from hypothesis import strategies as st

from seal.method.controls import counted_labels
from seal.method.diagnosis.rules import taxonomy_of
from seal.method.labels import EXCLUDED
from seal.method.profile import Profile, Rollout
from seal.method.reweighting import ReweightSettings, initial_rho, weight

LABELS = ("pass", "state_mismatch", "missing_tool_call", "spurious_tool_call", "budget_cut")
PAPER = [rule.label for rule in taxonomy_of("paper").rules]
BLAMES = (None, "own", "inherited", "own", None)
DIAGNOSIS = [{"turn": turn, "blame": blame} for turn, blame in enumerate(BLAMES)]


def test_observed_counts_every_failure_and_own_leaves_out_the_inherited_ones():
    assert counted_labels(LABELS, DIAGNOSIS) == LABELS
    assert counted_labels(LABELS, DIAGNOSIS, "own") == (*LABELS[:2], "inherited", *LABELS[3:])
    assert counted_labels(("state_mismatch",), [{"turn": 0}], "own") == ("state_mismatch",), "a log without blame"


def test_an_inherited_failure_enters_neither_the_profile_nor_the_weight():
    settings = ReweightSettings()
    diagnosis = [{"turn": 0, "blame": "own"}, {"turn": 1, "blame": "inherited"}]
    labels = counted_labels(("missing_tool_call", "state_mismatch"), diagnosis, "own")
    assert labels == ("missing_tool_call", "inherited")
    assert weight(labels, initial_rho(settings), settings) == 1.5
    seen = Profile().after(1, [Rollout("base", labels, 0.0)]).recent()
    assert set(seen.labels()) == {"missing_tool_call"}
    assert seen.categories()["base"].count == 1, "its reward is real"


@given(st.lists(st.tuples(st.sampled_from(PAPER), st.sampled_from(BLAMES)), max_size=6))
def test_only_inherited_failures_change_and_nothing_moves(turns):
    labels = tuple(label for label, _ in turns)
    diagnosis = [{"turn": turn, "blame": blame} for turn, (_, blame) in enumerate(turns)]
    counted = counted_labels(labels, diagnosis, "own")
    assert len(counted) == len(labels)
    for (label, blame), found in zip(turns, counted, strict=True):
        kept = blame != "inherited" or label in EXCLUDED | {"pass", "correct_abstention"}
        assert found == (label if kept else "inherited")
