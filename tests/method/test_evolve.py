"""Evolve: thresholds, ranking, hysteresis, categories, events, and determinism."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seal.method.diagnosis.rules import taxonomy_of
from seal.method.interface.cues import Omega, catalogue
from seal.method.interface.evolve import cues_in_use, evolve, initial_omega
from seal.method.profile import Cell, Profile, Rollout, Tally
from seal.settings.interface import EvolveSettings

ALL_ADAPT = {"adaptive": ("schema", "feedback", "guideline")}
DEFAULT = EvolveSettings(**ALL_ADAPT)
RIVALS = ("missing_tool_call", "state_mismatch")
FAILURES = sorted({cue.label for cue in catalogue().values()})


def seen(counts, passes=0, reward=0.0, category="base", step=1):
    """A profile of one-turn trajectories: ``counts`` by label with that reward, and passes with reward 1."""
    batch = [Rollout(category, (z,), reward) for z, n in counts.items() for _ in range(n)]
    batch += [Rollout(category, ("pass",), 1.0)] * passes
    return Profile(1).after(step, batch)


def guidelines(omega):
    return {name for name in omega.cues if catalogue()[name.split("/")[-1]].kind == "guideline"}


def step(omega, profile, settings=DEFAULT):
    return evolve(omega, profile, settings, 1)


@pytest.mark.parametrize(
    ("count", "passes", "reward", "on"),
    [
        (10, 90, 0.0, True),
        (9, 91, 0.0, False),
        (8, 40, 0.0, True),
        (7, 40, 0.0, False),
        (50, 50, 0.59, True),
        (50, 50, 0.6, False),
    ],
)
def test_thresholds_to_turn_on(count, passes, reward, on):
    omega, events = step(Omega(), seen({"missing_tool_call": count}, passes, reward))
    assert omega.cues == (("use_tools",) if on else ())
    assert len(events) == on and omega.version == on


@pytest.mark.parametrize(
    ("count", "passes", "reward", "on"),
    [(7, 93, 0.0, True), (6, 94, 0.0, False), (50, 50, 0.64, True), (50, 50, 0.65, False), (0, 100, 0.0, False)],
)
def test_thresholds_to_turn_off_are_laxer(count, passes, reward, on):
    omega, events = step(Omega.of(["use_tools"]), seen({"missing_tool_call": count}, passes, reward))
    assert omega.cues == (("use_tools",) if on else ())
    assert [event.on for event in events] == ([] if on else [False])


def test_the_worst_three_weaknesses_have_their_cues():
    counts = {"missing_tool_call": 40, "state_mismatch": 30, "spurious_tool_call": 20, "response_mismatch": 15}
    omega, _ = step(Omega(), seen(counts))
    assert guidelines(omega) == {"use_tools", "reread_state", "caution"}


def test_a_newcomer_must_be_clearly_worse_to_take_a_place():
    settings = EvolveSettings(max_labels=1, **ALL_ADAPT)
    on = Omega.of(["use_tools"])
    slightly, _ = step(on, seen({"missing_tool_call": 40, "state_mismatch": 45}), settings)
    clearly, events = step(on, seen({"missing_tool_call": 40, "state_mismatch": 85}), settings)
    assert (slightly.cues, clearly.cues) == (("use_tools",), ("reread_state",))
    assert [(event.cue, event.on) for event in events] == [("use_tools", False), ("reread_state", True)]


def test_the_margin_shrinks_with_the_evidence():
    settings, on = EvolveSettings(max_labels=1), Omega.of(["use_tools"])
    for many, replaced in ((1, False), (20, True)):
        counts = {"missing_tool_call": 20 * many, "state_mismatch": 32 * many}
        assert ("reread_state" in evolve(on, seen(counts), settings, 1)[0].cues) == replaced


@pytest.mark.parametrize(("factor", "replaced"), [(1.24, False), (1.26, True)])
def test_with_endless_evidence_a_newcomer_must_be_worse_by_a_quarter(factor, replaced):
    """1.25 exp(2 sqrt(1/n + 1/n')) (docs/how-it-works.md), at counts where the exponential is 1."""
    settings, many = EvolveSettings(max_labels=1), 10**12
    cells = {("base", label): Cell(count) for label, count in zip(RIVALS, (many, int(many * factor)), strict=True)}
    profile = Profile(1, ((1, Tally(cells)),))
    assert ("reread_state" in evolve(Omega.of(["use_tools"]), profile, settings, 1)[0].cues) == replaced


@pytest.mark.parametrize(("newcomer", "replaced"), [(74, False), (75, True)])
def test_the_fewer_sightings_the_worse_a_newcomer_must_be(newcomer, replaced):
    """At 40 sightings the limit for n' is 40 x 1.25 exp(2 sqrt(1/40 + 1/n'))."""
    profile = seen({"missing_tool_call": 40, "state_mismatch": newcomer})
    cues = evolve(Omega.of(["use_tools"]), profile, EvolveSettings(max_labels=1), 1)[0].cues
    assert ("reread_state" in cues) == replaced


def test_without_hysteresis_the_thresholds_are_all():
    plain, on = EvolveSettings(max_labels=1, hysteresis=False), Omega.of(["use_tools"])
    for profile in (seen({"missing_tool_call": 9}, passes=91), seen({"missing_tool_call": 50}, 50, reward=0.62)):
        assert guidelines(evolve(on, profile, plain, 1)[0]) == set()
    worse = seen({"missing_tool_call": 40, "state_mismatch": 41})
    assert guidelines(evolve(on, worse, plain, 1)[0]) == {"reread_state"}


def test_prevalence_is_a_share_of_all_turns_or_as_in_the_release_of_the_failed_ones():
    profile = seen({"missing_tool_call": 8, "correct_abstention": 12}, passes=80)
    of_failures = EvolveSettings(prevalence_of="failures")
    assert evolve(initial_omega(EvolveSettings()), profile, EvolveSettings(), 1)[1] == ()
    on, (event, *_) = evolve(initial_omega(of_failures), profile, of_failures, 1)
    assert "use_tools" in on.cues and (event.figures["prevalence"], event.figures["turns"]) == (1.0, 8)
    for mastered in (seen({}, passes=80), seen({"missing_tool_call": 3}, passes=80)):
        rule = EvolveSettings(prevalence_of="failures", hysteresis=False)
        assert "use_tools" not in evolve(on, mastered, rule, 2)[0].cues


def test_a_cue_can_be_left_out():
    without = EvolveSettings(kinds=("schema",), adaptive=(), left_out=("schema_types",))
    assert initial_omega(without).cues == ("schema_required", "schema_values", "schema_format")
    with pytest.raises(ValueError, match="there is no cue 'schema_type' to leave out; the cues are schema_required"):
        initial_omega(EvolveSettings(left_out=("schema_type",)))


def test_a_cue_can_be_left_out_of_one_environment():
    without = EvolveSettings(adaptive=("schema", "guideline"), left_out=("tau2_telecom/check_arguments",))
    start = initial_omega(without)
    assert start.for_category("base") == start.for_category("tau2_telecom/mms_issue") != ()
    wrong = [Rollout(category, ("argument_mismatch",), 0.0) for category in ("base", "tau2_telecom/x")] * 20
    omega, events = evolve(start, Profile(1).after(1, wrong), without, 1)
    on = {category: set(omega.for_category(category)) for category in ("base", "tau2_telecom/x")}
    assert on["base"] - on["tau2_telecom/x"] == {"check_arguments"} and "schema_types" in on["tau2_telecom/x"]
    assert ("tau2_telecom", "check_arguments") not in {(event.category, event.cue) for event in events}


def test_a_thin_window_changes_nothing():
    omega = Omega.of(["caution"], version=3)
    assert step(omega, seen({}, passes=7)) == (omega, ())
    assert step(omega, Profile()) == (omega, ())


def test_success_labels_and_excluded_labels_never_turn_a_cue_on():
    profile = seen({"correct_abstention": 50, "pass": 50, "checker_error": 50})
    assert step(Omega(), profile)[0].cues == ()


def test_the_empty_turn_of_the_releases_taxonomy_has_the_cue_of_a_missing_call():
    omega, (event,) = step(Omega(), seen({"empty_turn_model_response": 20}, passes=60))
    assert omega.cues == ("use_tools",) and event.figures["count"] == 20


def test_by_default_only_guidelines_wait_for_the_profile():
    settings = EvolveSettings()
    start = initial_omega(settings)
    assert set(start.cues) == {name for name, cue in catalogue().items() if cue.kind != "guideline"}
    worse, events = evolve(start, seen({"argument_mismatch": 50}), settings, 1)
    assert [(event.cue, event.on) for event in events] == [("check_arguments", True)]
    better, events = evolve(worse, seen({}, passes=50), settings, 2)
    assert better.cues == start.cues and [event.cue for event in events] == ["check_arguments"]


def test_all_cues_of_a_label_come_together_if_their_kind_is_in_use():
    profile = seen({"argument_mismatch": 50})
    assert set(step(Omega(), profile)[0].cues) == {
        "schema_required",
        "schema_types",
        "schema_values",
        "check_arguments",
    }
    settings = EvolveSettings(kinds=("schema",), adaptive=("schema",))
    assert step(Omega(), profile, settings)[0].cues == ("schema_required", "schema_types", "schema_values")
    settings = EvolveSettings(kinds=("feedback", "guideline"))
    omega, _ = evolve(initial_omega(settings), seen({"pass": 50}), settings, 1)
    assert {catalogue()[name].kind for name in omega.cues} == {"feedback"}


def test_a_cue_belongs_to_the_taxonomy_that_has_its_label():
    settings = EvolveSettings()
    paper, release = ({cue.name for cue in cues_in_use(settings, taxonomy_of(name))} for name in ("paper", "release"))
    assert release - paper == {"right_service"} and not paper - release
    profile = seen({"instance_mismatch": 50})
    assert "right_service" in evolve(Omega(), profile, settings, 1, taxonomy_of("release"))[0].cues
    assert "right_service" not in evolve(Omega(), profile, settings, 1)[0].cues


def test_a_frozen_interface_keeps_its_start():
    settings = EvolveSettings(kinds=("schema",), adaptive=())
    start = initial_omega(settings)
    assert start.cues and step(start, seen({"missing_tool_call": 50}), settings) == (start, ())


def test_each_of_several_environments_is_judged_by_its_own_figures():
    batch = [Rollout("tau2_telecom/mms_issue", ("spurious_tool_call",), 0.0)] * 20
    batch += [Rollout("base", ("pass",), 1.0)] * 300
    omega, events = step(Omega(), Profile(1).after(1, batch))
    assert omega.cues == ("tau2_telecom/caution",) and [event.category for event in events] == ["tau2_telecom"]
    assert omega.for_category("tau2_telecom/other") == ("caution",) and omega.for_category("miss_func") == ()
    calm = [Rollout("tau2_telecom/mms_issue", ("pass",), 1.0)] * 20 + batch[20:]
    assert step(omega, Profile(1).after(2, calm))[0].for_category("tau2_telecom/mms_issue") == ()
    alone = step(omega, Profile(1).after(2, calm[:20]))[0]  # the window has none of the other's rollouts
    assert alone.for_category("tau2_telecom/mms_issue") == alone.for_category("base") == ()
    worse = [Rollout("tau2_telecom/mms_issue", ("missing_tool_call",), 0.0)] * 20
    assert step(omega, Profile(1).after(2, worse))[0].cues == ("tau2_telecom/use_tools",)


def test_dialogues_whose_earlier_turns_were_not_judged_are_figures_of_their_environment():
    without = EvolveSettings(left_out=("tau2_retail/caution",))
    failed = [Rollout("tau2_retail/x", ("checker_error", "missing_tool_call"), 0.0)] * 40
    omega, _ = evolve(initial_omega(without), Profile(1).after(1, failed), without, 1)
    assert "use_tools" in omega.for_category("tau2_retail/x")
    beside = [Rollout("base", ("pass",), 1.0)] * 40
    omega, (event,) = evolve(initial_omega(EvolveSettings()), Profile(1).after(1, failed + beside), EvolveSettings(), 1)
    assert (event.category, event.cue) == ("tau2_retail", "use_tools")


def test_an_environment_without_cues_of_its_own_has_those_of_everywhere():
    failed = [Rollout("tau2_telecom/mms_issue", ("recovery_failure",), 0.0)] * 20
    failed += [Rollout("base", ("recovery_failure",), 0.0)] * 20
    profile, guidelines_alone = Profile(1).after(1, failed), EvolveSettings(kinds=("guideline",))
    for elsewhere in ({"bfcl": ["recover"]}, {"bfcl": ["recover"], "*": ["caution"]}):
        omega, events = step(Omega.of(elsewhere), profile, guidelines_alone)
        assert omega.for_category("base") == omega.for_category("tau2_telecom/mms_issue") == ("recover",)
        turned = {(event.category, event.cue, event.on) for event in events}
        assert turned == {("tau2_telecom", "recover", True)} | (
            {("tau2_telecom", "caution", False)} if "*" in elsewhere else set()
        )


def test_events_tell_the_figures_that_caused_them():
    _, (event,) = step(Omega(), seen({"missing_tool_call": 20}, passes=60))
    assert asdict(event) == {
        "step": 1,
        "cue": "use_tools",
        "on": True,
        "category": "*",
        "figures": {"prevalence": 0.25, "mean_reward": 0.0, "count": 20, "score": 0.25, "turns": 80},
    }
    json.dumps(asdict(event))


tallies = st.dictionaries(st.sampled_from([*FAILURES, "pass", "correct_abstention"]), st.integers(0, 60))


@given(tallies, st.floats(0, 1), st.sets(st.sampled_from(sorted(catalogue()))))
def test_evolve_is_deterministic_bounded_and_versioned(counts, reward, cues):
    settings = EvolveSettings(**ALL_ADAPT)
    before, profile = Omega.of(cues, version=4), seen(counts, reward=reward)
    after, events = evolve(before, profile, settings, 9)
    assert evolve(Omega.from_json(before.to_json()), Profile.from_json(profile.to_json()), settings, 9) == (
        after,
        events,
    )
    assert after.version == 4 + bool(events)
    on, off = set(before.for_category("base")), set(after.for_category("base"))
    assert {event.cue for event in events} == on ^ off
    if events:
        assert len({catalogue()[name].label for name in off}) <= 3
    again, more = evolve(after, profile, settings, 10)
    assert (again, more) == (after, ())
