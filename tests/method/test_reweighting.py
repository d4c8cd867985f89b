"""w_j and rho_t against the paper's equations, the edges, and the invariants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seal.method import labels
from seal.method.diagnosis.rules import taxonomy_of
from seal.method.profile import Profile, Rollout
from seal.method.reweighting import initial_rho, update_rho, weight
from seal.settings.reweighting import ReweightSettings

DEFAULT = ReweightSettings()
RHO = initial_rho(DEFAULT)
RELEASE = initial_rho(DEFAULT, taxonomy_of("release"))


def settings(**config):
    return ReweightSettings.read(config)


# --- w_j -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("z", "expected"),
    [
        (("spurious_tool_call",), 2.0),
        (("pass", "pass"), 1.0),
        (("pass", "missing_tool_call"), 1.25),
        (("pass", "missing_tool_call", "checker_error", "gt_error"), 1.25),
        (("response_mismatch",), 0.9),
        (("correct_abstention", "state_mismatch", "response_mismatch"), (1.8 + 1.0 + 0.9) / 3),
        (("checker_error",), 1.0),
        ((), 1.0),
    ],
)
def test_the_weight_is_the_mean_utility_of_the_labels_that_count(z, expected):
    assert weight(z, RHO, DEFAULT) == pytest.approx(expected)


def test_utilities_are_table_6():
    shared = {"spurious_tool_call": 2.0, "correct_abstention": 1.8, "state_mismatch": 1.0, "response_mismatch": 0.9}
    assert shared.items() <= RHO.items() and shared.items() <= RELEASE.items()
    assert (RHO["missing_tool_call"], RHO["pass"]) == (1.5, 1.0)
    assert (RELEASE["empty_turn_model_response"], RELEASE["instance_mismatch"]) == (1.5, 0.6)


def test_a_taxonomy_has_utilities_for_its_own_labels_only():
    assert set(RHO) == {rule.label for rule in taxonomy_of("paper").rules} - labels.EXCLUDED
    assert set(RELEASE) == {rule.label for rule in taxonomy_of("release").rules} - labels.EXCLUDED
    with pytest.raises(ValueError, match="the paper taxonomy has no instance_mismatch"):
        initial_rho(settings(rho={"instance_mismatch": 0.7}))
    assert initial_rho(settings(rho={"instance_mismatch": 0.7}), taxonomy_of("release"))["instance_mismatch"] == 0.7


def test_the_clip_holds():
    wide = settings(rho={"pass": 9.0, "state_mismatch": 0.01}, dynamic=False)
    rho = initial_rho(wide)
    assert weight(("pass",), rho, wide) == 2.0
    assert weight(("state_mismatch",), rho, wide) == 0.5


def test_an_undeclared_label_is_named():
    with pytest.raises(ValueError, match="label 'odd' has no utility: declare it here"):
        weight(("odd",), RHO, DEFAULT)


# --- rho_t ---------------------------------------------------------------------------


def seen(counts, rewards=None):
    rewards = rewards or {}
    batch = [Rollout("base", (z,), rewards.get(z, 0.0)) for z, n in counts.items() for _ in range(n)]
    return Profile(1).after(1, batch)


def test_rho_follows_the_equation():
    profile = seen({"missing_tool_call": 16, "pass": 48}, {"missing_tool_call": 0.25, "pass": 1.0})
    rho = update_rho({**RHO, "missing_tool_call": 1.7}, profile, DEFAULT)
    target = 1.5 * (1 + 1.0 * (16 / 64) * (1 - 0.25) * (16 / 32))
    assert rho["missing_tool_call"] == pytest.approx(0.75 * 1.7 + 0.25 * target)
    assert rho["state_mismatch"] == 1.0


def test_figures_count_in_full_at_as_many_sightings_as_the_recipe_says():
    def raised(sightings: int, **config) -> float:
        profile = seen({"response_mismatch": sightings})
        return update_rho(RHO, profile, settings(beta=1.0, **config))["response_mismatch"]

    assert raised(31) < raised(32) == raised(64) == 1.8
    assert raised(7, confidence=8) < raised(8, confidence=8) == 1.8


def test_the_target_is_clipped():
    rho = dict(RHO)
    for _ in range(200):
        rho = update_rho(rho, seen({"missing_tool_call": 64}), DEFAULT)
    assert rho["missing_tool_call"] == pytest.approx(2.0)
    assert update_rho(RHO, seen({"spurious_tool_call": 64}), DEFAULT)["spurious_tool_call"] == 2.0


def test_pass_and_excluded_labels_keep_their_utility():
    assert update_rho(RHO, seen({"pass": 50, "checker_error": 50, "gt_error": 50}), DEFAULT) == RHO


@pytest.mark.parametrize("config", [{"dynamic": False}, {"beta": 0.0}])
def test_rho_stays_when_told_to(config):
    assert update_rho(RHO, seen({"missing_tool_call": 64}), settings(**config)) == RHO


def test_alpha_zero_draws_rho_to_its_base():
    rho = update_rho({**RHO, "missing_tool_call": 1.9}, seen({"missing_tool_call": 64}), settings(alpha=0.0))
    assert rho["missing_tool_call"] == pytest.approx(0.75 * 1.9 + 0.25 * 1.5)


def test_beta_one_jumps_to_the_target():
    rho = update_rho(RHO, seen({"response_mismatch": 64}), settings(beta=1.0))
    assert rho["response_mismatch"] == pytest.approx(1.8)


def test_a_label_unknown_to_an_older_checkpoint_starts_at_its_base():
    older = {z: utility for z, utility in RHO.items() if z != "recovery_failure"}
    assert update_rho(older, seen({"pass": 9}), DEFAULT)["recovery_failure"] == 1.2


# --- invariants ----------------------------------------------------------------------

vocabulary = st.sampled_from(sorted(rule.label for rule in taxonomy_of("paper").rules))
batches = st.lists(st.lists(vocabulary, max_size=8).map(tuple), max_size=8)
any_settings = st.builds(
    ReweightSettings,
    w_min=st.floats(0.1, 1.0),
    w_max=st.floats(1.0, 4.0),
    alpha=st.floats(0, 5),
    beta=st.floats(0, 1),
)


@given(batches, any_settings)
def test_weights_are_positive_and_bounded(batch, chosen):
    """So no advantage changes its sign."""
    rho = update_rho(initial_rho(chosen), seen({"missing_tool_call": 40, "pass": 10}), chosen)
    found = [weight(z, rho, chosen) for z in batch]
    assert all(chosen.w_min <= w <= chosen.w_max and w > 0 for w in found)


@given(st.lists(vocabulary, max_size=8), any_settings, st.randoms(use_true_random=False))
def test_the_order_of_turns_does_not_matter_to_the_weight(z, chosen, rng):
    shuffled = rng.sample(z, len(z))
    assert weight(shuffled, RHO, chosen) == pytest.approx(weight(z, RHO, chosen))


@given(st.dictionaries(vocabulary, st.integers(1, 60), max_size=6), st.floats(0, 1), any_settings)
def test_rho_stays_positive_and_within_reach(counts, reward, chosen):
    rho = initial_rho(chosen)
    profile = seen(counts, dict.fromkeys(counts, reward))
    for _ in range(3):
        rho = update_rho(rho, profile, chosen)
    assert all(0 < utility <= max(chosen.w_max, 2.0) for utility in rho.values())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"rho": {"pass": 0}}, "seal.reweighting.rho.pass is 0; it must be greater than 0"),
        ({"rho": {"pass": float("inf")}}, "seal.reweighting.rho.pass is inf"),
        ({"per_turn": True}, "seal.reweighting.per_turn is not a setting"),
    ],
)
def test_bad_settings_are_named(config, message):
    with pytest.raises(ValueError, match=message):
        ReweightSettings.read(config, "seal.reweighting")


@pytest.mark.parametrize("label", ["odd", "gt_error", "empty_turn_model_response"])
def test_a_utility_for_a_label_that_the_taxonomy_never_weighs_is_named(label):
    with pytest.raises(ValueError, match=f"the paper taxonomy has no {label}"):
        initial_rho(settings(rho={label: 1.0}))
