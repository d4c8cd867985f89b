"""w_j and rho_t against the paper's equations, the edges, and the invariants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seal import labels
from seal.diagnosis.profile import Profile, Trajectory
from seal.reweighting import initial_rho, sign_of, turn_weights, update_rho, weight, weights
from seal.settings.reweighting import BudgetSettings, ReweightSettings

DEFAULT = ReweightSettings()
RHO = initial_rho(DEFAULT)
RELEASE = initial_rho(DEFAULT, "release")


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
        (None, 1.0),
    ],
)
def test_the_weight_is_the_mean_utility_of_the_labels_that_count(z, expected):
    assert weight(z, RHO, DEFAULT, 1) == pytest.approx(expected)


def test_utilities_are_table_6():
    shared = {"spurious_tool_call": 2.0, "correct_abstention": 1.8, "state_mismatch": 1.0, "response_mismatch": 0.9}
    assert shared.items() <= RHO.items() and shared.items() <= RELEASE.items()
    assert (RHO["missing_tool_call"], RHO["pass"]) == (1.5, 1.0)
    assert (RELEASE["empty_turn_model_response"], RELEASE["instance_mismatch"]) == (1.5, 0.6)


def test_a_taxonomy_has_utilities_for_its_own_labels_only():
    assert set(RHO) == set(labels.PAPER) - labels.EXCLUDED
    assert set(RELEASE) == set(labels.RELEASE) - labels.EXCLUDED
    with pytest.raises(ValueError, match="the paper taxonomy has no instance_mismatch"):
        initial_rho(settings(rho={"instance_mismatch": 0.7}))
    assert initial_rho(settings(rho={"instance_mismatch": 0.7}), "release")["instance_mismatch"] == 0.7


def test_the_clip_holds():
    wide = settings(rho={"pass": 9.0, "state_mismatch": 0.01}, dynamic=False)
    rho = initial_rho(wide)
    assert weight(("pass",), rho, wide, 1) == 2.0
    assert weight(("state_mismatch",), rho, wide, 1) == 0.5


def test_off_and_warm_up_leave_advantages_alone():
    assert weight(("spurious_tool_call",), RHO, settings(enabled=False), 9) == 1.0
    warm = settings(warmup_steps=3)
    assert [weight(("spurious_tool_call",), RHO, warm, step) for step in (1, 3, 4)] == [1.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("apply_to", "expected"), [("all", [2, 2, 2]), ("positive", [1, 1, 2]), ("negative", [2, 1, 1])]
)
def test_apply_to_looks_at_the_sign(apply_to, expected):
    chosen = settings(apply_to=apply_to)
    assert [weight(("spurious_tool_call",), RHO, chosen, 1, sign) for sign in (-1, 0, 1)] == expected


def test_sign_aware_weighs_good_labels_when_praised_and_failures_when_punished():
    aware = settings(sign_aware=True)
    assert weight(("correct_abstention",), RHO, aware, 1, -1) == 1.0
    assert weight(("correct_abstention",), RHO, aware, 1, 1) == 1.8
    assert weight(("spurious_tool_call",), RHO, aware, 1, -1) == 2.0
    assert weight(("spurious_tool_call",), RHO, aware, 1, 1) == 1.0
    assert weight(("correct_abstention", "spurious_tool_call"), RHO, aware, 1, -1) == 1.5
    assert weight(("spurious_tool_call",), RHO, aware, 1, 0) == 1.0


def test_turn_weights_are_one_a_turn():
    z = ("pass", "spurious_tool_call", "checker_error", "response_mismatch")
    assert turn_weights([z, None], RHO, DEFAULT, 1, [1, 0]) == [[1.0, 2.0, 1.0, 0.9], []]


def test_an_undeclared_label_is_named():
    with pytest.raises(ValueError, match="label 'odd' has no utility; declare it in this process"):
        weight(("odd",), RHO, DEFAULT, 1)


# --- the budget ----------------------------------------------------------------------


def test_strength_softens_and_clamps_hold():
    assert weight(("spurious_tool_call",), RHO, settings(budget={"strength": 0.5}), 1) == 1.5
    assert weight(("spurious_tool_call",), RHO, settings(budget={"strength": 0}), 1) == 1.0
    assert weight(("spurious_tool_call",), RHO, settings(budget={"high": 1.2}), 1) == 1.2
    assert weight(("instance_mismatch",), RELEASE, settings(budget={"low": 0.8}), 1) == 0.8


def test_renormalising_gives_a_mean_of_one_and_leaves_unlabelled_rows():
    even = settings(budget={"renormalise": True})
    found = weights([("spurious_tool_call",), ("pass",), (), ("checker_error",)], RHO, even, 1)
    assert found == pytest.approx([2 / 1.5, 1 / 1.5, 1.0, 1.0])
    assert weights([(), None], RHO, even, 1) == [1.0, 1.0]


def test_a_batch_without_renormalising_is_row_by_row():
    batch = [("pass",), ("spurious_tool_call", "pass"), None]
    assert weights(batch, RHO, DEFAULT, 1) == [weight(z, RHO, DEFAULT, 1) for z in batch]
    with pytest.raises(ValueError):
        weights(batch, RHO, DEFAULT, 1, [1])


@pytest.mark.parametrize(("over", "scale"), [("all", 4 / 5.5), ("nonzero", 2 / 3.5)])
def test_renormalise_makes_the_mean_one_over_what_it_names(over, scale):
    batch, signs = [("spurious_tool_call",), ("missing_tool_call",), ("pass",), ()], [1, -1, 0, 0]
    plain = weights(batch, RHO, DEFAULT, 1, signs)
    scaled = weights(batch, RHO, settings(renormalise=over), 1, signs)
    assert scaled == pytest.approx([w * scale for w in plain])
    counted = scaled if over == "all" else scaled[:2]
    assert sum(counted) / len(counted) == pytest.approx(1)


def test_renormalised_weights_keep_their_ratios_beyond_the_clip():
    rho = {**RHO, "state_mismatch": 0.5}
    batch = [("spurious_tool_call",)] + [("state_mismatch",)] * 9
    found = weights(batch, rho, settings(renormalise="all"), 1)
    assert sum(found) / 10 == pytest.approx(1) and found[0] / found[1] == pytest.approx(4) and found[0] > 2


def test_signs_keep_the_sums_of_positive_and_of_negative_advantages():
    batch = [("spurious_tool_call",), ("state_mismatch",), ("missing_tool_call", "pass"), ("pass",), ("pass",), ()]
    advantages = [-0.5, -1.5, 0.7, 1.3, 0.0, 0.0]
    found = weights(batch, RHO, settings(renormalise="signs"), 1, advantages)
    weighted = [w * a for w, a in zip(found, advantages, strict=True)]
    assert sum(weighted[:2]) == pytest.approx(-2) and sum(weighted[2:]) == pytest.approx(2)
    assert found[0] / found[1] == pytest.approx(2) and found[2] / found[3] == pytest.approx(1.25)
    assert found[4:] == [1.0, 1.0]


def test_with_signs_a_nan_advantage_leaves_the_other_weights_alone():
    found = weights([("pass",), ("pass",), ("pass",)], RHO, settings(renormalise="signs"), 1, [float("nan"), 0.0, 1.0])
    assert found == [1.0, 1.0, 1.0]


def test_without_renormalising_failures_weigh_more_than_successes():
    """Why `signs` exists: the group's baseline makes the sum of A_j zero, and w does not keep it so."""
    batch, advantages = [("missing_tool_call",), ("pass",)] * 4, [-1.0, 1.0] * 4
    plain = weights(batch, RHO, DEFAULT, 1, advantages)
    assert sum(w * a for w, a in zip(plain, advantages, strict=True)) == pytest.approx(4 * (1.0 - 1.5))
    even = weights(batch, RHO, settings(renormalise="signs"), 1, advantages)
    assert sum(w * a for w, a in zip(even, advantages, strict=True)) == pytest.approx(0)


def test_turn_weights_keep_the_sums_over_turns_by_sign():
    batch, even = [("spurious_tool_call", "pass"), ("pass",)], settings(renormalise="signs", per_turn=True)
    found = turn_weights(batch, RHO, even, 1, [-0.3, 0.3])
    assert found == [pytest.approx([2 / 1.5, 1 / 1.5]), [1.0]]


def test_turn_weights_are_renormalised_over_turns():
    batch, even = [("spurious_tool_call", "pass"), ("pass",)], settings(renormalise="nonzero", per_turn=True)
    found = turn_weights(batch, RHO, even, 1, [-1, 1])
    assert found == [pytest.approx([1.5, 0.75]), pytest.approx([0.75])]


# --- rho_t ---------------------------------------------------------------------------


def seen(counts, rewards=None):
    rewards = rewards or {}
    batch = [Trajectory("t", "base", (z,), rewards.get(z, 0.0)) for z, n in counts.items() for _ in range(n)]
    return Profile.empty(1).updated(1, batch)


def test_rho_follows_the_equation():
    profile = seen({"missing_tool_call": 16, "pass": 48}, {"missing_tool_call": 0.25, "pass": 1.0})
    rho = update_rho({**RHO, "missing_tool_call": 1.7}, profile, DEFAULT)
    target = 1.5 * (1 + 1.0 * (16 / 64) * (1 - 0.25) * (16 / 32))
    assert rho["missing_tool_call"] == pytest.approx(0.75 * 1.7 + 0.25 * target)
    assert rho["state_mismatch"] == 1.0


def test_the_target_is_clipped():
    rho = dict(RHO)
    for _ in range(200):
        rho = update_rho(rho, seen({"missing_tool_call": 64}), DEFAULT)
    assert rho["missing_tool_call"] == pytest.approx(2.0)
    assert update_rho(RHO, seen({"spurious_tool_call": 64}), DEFAULT)["spurious_tool_call"] == 2.0


def test_pass_and_excluded_labels_keep_their_utility():
    assert update_rho(RHO, seen({"pass": 50, "checker_error": 50, "gt_error": 50}), DEFAULT) == RHO


@pytest.mark.parametrize("config", [{"dynamic": False}, {"beta": 0.0}, {"enabled": False}])
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

vocabulary = st.sampled_from(sorted(labels.PAPER))
batches = st.lists(st.none() | st.lists(vocabulary, max_size=8).map(tuple), max_size=8)
any_settings = st.builds(
    ReweightSettings,
    enabled=st.booleans(),
    w_min=st.floats(0.1, 1.0),
    w_max=st.floats(1.0, 4.0),
    alpha=st.floats(0, 5),
    beta=st.floats(0, 1),
    apply_to=st.sampled_from(["all", "positive", "negative"]),
    warmup_steps=st.integers(0, 3),
    sign_aware=st.booleans(),
    budget=st.builds(
        BudgetSettings, strength=st.floats(0, 1), low=st.floats(0, 1), high=st.floats(1, 3), renormalise=st.booleans()
    ),
)


@given(batches, any_settings, st.integers(1, 5), st.data())
def test_weights_are_positive_bounded_and_never_change_a_sign(batch, chosen, step, data):
    advantages = data.draw(st.lists(st.floats(-3, 3), min_size=len(batch), max_size=len(batch)))
    rho = update_rho(initial_rho(chosen), seen({"missing_tool_call": 40, "pass": 10}), chosen)
    found = weights(batch, rho, chosen, step, advantages)
    assert found == weights(batch, rho, chosen, step, advantages)
    for w, advantage in zip(found, advantages, strict=True):
        assert chosen.w_min <= w <= chosen.w_max and w > 0
        assert sign_of(w * advantage) == sign_of(advantage) or abs(advantage) < 1e-300


@given(batches, st.sampled_from(["none", "all", "nonzero", "signs"]), st.data())
def test_renormalising_keeps_signs_and_what_it_names(batch, mode, data):
    values = st.floats(-3, 3).filter(lambda a: a == 0 or abs(a) > 1e-6)
    advantages = data.draw(st.lists(values, min_size=len(batch), max_size=len(batch)))
    chosen = settings(renormalise=mode)
    plain = weights(batch, RHO, DEFAULT, 1, advantages)
    found = weights(batch, RHO, chosen, 1, advantages)
    assert all(w > 0 for w in found)
    for sign in (-1, 1):
        own = [i for i, a in enumerate(advantages) if sign_of(a) == sign]
        assert [found[i] * plain[own[0]] for i in own] == pytest.approx([plain[i] * found[own[0]] for i in own])
        if mode == "signs":
            assert sum(found[i] * advantages[i] for i in own) == pytest.approx(sum(advantages[i] for i in own))


@given(st.lists(vocabulary, max_size=8), any_settings, st.randoms(use_true_random=False))
def test_the_order_of_turns_does_not_matter_to_the_weight(z, chosen, rng):
    shuffled = rng.sample(z, len(z))
    assert weight(shuffled, RHO, chosen, 4, 1) == pytest.approx(weight(z, RHO, chosen, 4, 1))


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
        ({"renormalise": "all", "budget": {"renormalise": True}}, "either renormalise or budget.renormalise"),
        ({"renormalise": "mean"}, "seal.reweighting.renormalise is 'mean'"),
        ({"rho": {"odd": 1.0}}, "seal.reweighting.rho: unknown label 'odd'"),
        ({"rho": {"pass": 0}}, "seal.reweighting.rho.pass is 0; it must be a number above 0"),
        ({"rho": {"pass": float("inf")}}, "seal.reweighting.rho.pass is inf"),
        ({"rho": {"gt_error": 2}}, "gt_error is never weighted"),
        ({"budgets": {}}, "did you mean seal.reweighting.budget"),
    ],
)
def test_bad_settings_are_named(config, message):
    with pytest.raises(ValueError, match=message):
        ReweightSettings.read(config, "seal.reweighting")
