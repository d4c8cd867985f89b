"""Psi: Table 5, its order, the documented decisions and the release's taxonomy."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from seal.method import labels
from seal.method.diagnosis import rules as rules_module
from seal.method.diagnosis.evidence import ActionEvidence, CallEvidence, TurnEvidence, Violation
from seal.method.diagnosis.rules import Diagnosis, Rule, diagnose, taxonomy_of, with_rule

HERE = Path(__file__).parent
CASES = json.loads((HERE / "open_cases.json").read_text(encoding="utf-8"))
EVIDENCE = TypeAdapter(list[TurnEvidence])
LABELS = {taxonomy: [rule.label for rule in taxonomy_of(taxonomy).rules] for taxonomy in ("paper", "release")}
UNJUDGED = "checker_error"


def diagnose_turn(turn):
    """The diagnosis of one turn, also of one that did not take place."""
    return rules_module._diagnose(turn, taxonomy_of("paper").rules)


def call(name="ls", available=True, **fields):
    return CallEvidence(name=name, arguments={}, available=available, **fields)


def action(*calls, **fields):
    return ActionEvidence(calls=calls, **fields)


def turn(*actions, expected=1, matches=(None, None, None), **fields):
    instances, state, response = matches
    return TurnEvidence(
        turn=0,
        expected_calls=expected,
        actions=actions,
        instances_match=instances,
        state_match=state,
        response_match=response,
        **fields,
    )


SAY = ActionEvidence()
OK, STATE, RESPONSE, INSTANCES = (True, True, True), (True, False, True), (True, True, False), (False, None, None)
THREE = (call(), call(), call())
BAD = Violation("type", "a", "a must be a string")


@pytest.mark.parametrize(
    ("evidence", "label"),
    [
        (turn(action(call()), SAY, matches=OK), "pass"),
        (turn(action(refusals=("bad",)), SAY), "invalid_tool_call"),
        (turn(action(call("nope", available=False)), SAY, matches=STATE), "invalid_tool_call"),
        (turn(action(call(violations=(BAD,))), SAY, matches=STATE), "argument_mismatch"),
        (turn(action(call(error="signature")), SAY, matches=STATE), "argument_mismatch"),
        (turn(action(call()), SAY, matches=STATE), "state_mismatch"),
        (turn(action(call(writes=False)), SAY, matches=STATE), "state_mismatch"),
        (turn(action(call(writes=False)), SAY, matches=STATE, needed_writes=("mv",)), "missing_tool_call"),
        (turn(action(call("mv")), SAY, matches=STATE, needed_writes=("mv", "cp")), "state_mismatch"),
        (turn(action(call("mv", error="execution")), SAY, matches=STATE, needed_writes=("mv",)), "recovery_failure"),
        (turn(action(call(error="execution")), SAY, matches=STATE), "recovery_failure"),
        (turn(action(call(error="execution")), action(call()), SAY, matches=STATE), "state_mismatch"),
        (turn(SAY), "missing_tool_call"),
        (turn(action(call()), SAY, matches=RESPONSE), "response_mismatch"),
        (turn(action(call()), SAY, matches=RESPONSE, absent=("ls",), needed=("ls",)), "response_mismatch"),
        (turn(action(*THREE), SAY, matches=RESPONSE, absent=("cat",), needed=("cat",)), "missing_tool_call"),
        (turn(action(*THREE), SAY, matches=RESPONSE, absent=("ls",), needed=("ls",) * 4), "missing_tool_call"),
        (turn(action(call()), stop="length"), "budget_cut"),
        (turn(action(call()), action(truncated=True), stop="length"), "budget_cut"),
        (turn(action(call(error="execution")), action(truncated=True), stop="length"), "budget_cut"),
        (turn(action(refusals=("bad",), truncated=True), SAY), "missing_tool_call"),
        (turn(*[action(call())] * 20, stop="step_limit"), "budget_cut"),
        (turn(*[action(call())] * 20, stop="step_limit", matches=STATE), "budget_cut"),
        (turn(*[action(call())] * 20, stop="step_limit", matches=OK), "pass"),
        (turn(*[action(call(error="execution"))] * 20, stop="step_limit"), "recovery_failure"),
        (turn(action(truncated=True), stop="length", expected=0), "budget_cut"),
        (turn(action(call()), stop="step_limit", expected=0), "spurious_tool_call"),
        (turn(action(call()), SAY, expected=0), "spurious_tool_call"),
        (turn(SAY, expected=0), "correct_abstention"),
        (turn(action(call()), SAY, reference_error="boom", matches=OK), "gt_error"),
        (turn(action(call()), SAY), "checker_error"),
        (turn(action(call()), SAY, matches=INSTANCES), "checker_error"),
    ],
)
def test_each_label_of_the_paper(evidence, label):
    found = diagnose_turn(evidence)
    assert found.label == label
    assert found.reason and "\n" not in found.reason


def test_the_first_signal_in_table_5_dominates_and_all_are_kept():
    messy = turn(
        action(call("nope", available=False, error="unavailable")),
        action(call(violations=(BAD,), error="signature")),
        action(call()),
        action(call(error="execution")),
        SAY,
        matches=(True, False, False),
        needed=("grep",),
        absent=("grep",),
    )
    found = diagnose_turn(messy)
    table_5 = (
        "invalid_tool_call",
        "argument_mismatch",
        "state_mismatch",
        "recovery_failure",
        "missing_tool_call",
        "response_mismatch",
    )
    assert (found.label, found.signals) == ("invalid_tool_call", table_5)
    assert [label for label in LABELS["paper"] if label in table_5] == list(table_5)


def test_an_error_that_only_the_result_text_tells_counts_as_feedback():
    text = "['Error: User not authenticated. Please log in to view the watchlist.']"
    told, unsaid = (turn(action(call(result=text, reported=said)), SAY, matches=STATE) for said in (True, False))
    assert (diagnose_turn(told).label, diagnose_turn(unsaid).label) == ("recovery_failure", "state_mismatch")


def test_recovery_needs_a_success_after_the_error_not_before_it():
    before = turn(action(call(), call(error="execution")), SAY, matches=RESPONSE)
    assert diagnose_turn(before).label == "recovery_failure"
    later = turn(action(call(error="execution")), action(call()), SAY, matches=RESPONSE)
    assert diagnose_turn(later).signals == ("response_mismatch",)
    in_one_message = turn(action(call(error="execution"), call()), SAY, matches=RESPONSE)
    assert diagnose_turn(in_one_message).signals == ("response_mismatch",)


def asked(tool: str, result: str) -> CallEvidence:
    return call(tool, error="execution", result=result)


@pytest.mark.parametrize(
    ("error", "success", "recovered"),
    [
        (call("grep", error="execution"), "grep", True),
        (call("grep", error="execution"), "ls", False),
        (call("startEngine", error="execution", result='{"error": "Fuel tank is empty."}'), "fillFuelTank", True),
        (call("startEngine", error="execution", result='{"error": "Fuel tank is empty."}'), "lockDoors", False),
        (call("post_tweet", error="execution", result="User not authenticated."), "authenticate_twitter", True),
        (call("post_tweet", error="execution", result="User not authenticated."), "get_tweet", False),
        (asked("startEngine", "All doors must be locked before starting the engine."), "lockDoors", True),
        (asked("startEngine", "Brake pedal needs to be pressed when starting the engine."), "pressBrakePedal", True),
        (asked("setCruiseControl", "Start the engine before activating the cruise control."), "startEngine", True),
        (asked("book_flight", "Card not registered"), "register_credit_card", True),
        (asked("place_order", "Insufficient funds"), "fund_account", True),
        (call("fly", available=False, error="unavailable"), "ls", True),
    ],
)
def test_an_error_is_closed_by_its_tool_or_by_what_it_asked_for(error, success, recovered):
    evidence = turn(action(error), action(call(success)), SAY, matches=RESPONSE)
    assert ("recovery_failure" in diagnose_turn(evidence).signals) is not recovered


def test_an_unavailable_tool_that_executed_counts_as_executed():
    evidence = turn(action(call("nope", available=False)), SAY, matches=STATE)
    assert diagnose_turn(evidence).signals == ("invalid_tool_call", "state_mismatch")


@pytest.mark.parametrize(
    ("evidence", "label"),
    [
        (turn(action(call()), SAY, matches=OK), "pass"),
        (turn(action(call()), SAY, expected=0), "spurious_tool_call"),
        (turn(action(refusals=("bad",)), SAY, expected=0), "correct_abstention"),
        (turn(action(refusals=("bad",)), SAY), "empty_turn_model_response"),
        (turn(action(call()), SAY, matches=INSTANCES), "instance_mismatch"),
        (turn(action(call(error="execution")), SAY, matches=STATE), "state_mismatch"),
        (turn(action(call()), SAY, matches=RESPONSE), "response_mismatch"),
        (turn(stop="not_reached"), "empty_turn_model_response"),
        (turn(stop="not_reached", expected=0), "correct_abstention"),
        (turn(reference_error="x"), "gt_error"),
    ],
)
def test_each_label_of_the_release(evidence, label):
    assert diagnose([evidence], "release")[0].label == label


def test_turns_that_did_not_take_place_have_no_label():
    turns = [turn(SAY), turn(stop="open"), turn(stop="not_reached", expected=0)]
    assert [d.label for d in diagnose(turns)] == ["missing_tool_call"]
    assert len(diagnose(turns, "release")) == 3


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["decision"].split(".")[0])
def test_a_case_that_the_paper_leaves_open_is_decided_as_written(case):
    turns = EVIDENCE.validate_python(case["turns"])
    assert [d.label for d in diagnose(turns)] == case["labels"]


def test_bad_registrations_are_refused_in_a_sentence():
    rule = Rule("mine", "no_such_label", lambda turn: None)
    with pytest.raises(ValueError, match="unknown label 'no_such_label'"):
        with_rule(rule)
    with pytest.raises(ValueError, match="there is already a rule named 'other_state'"):
        with_rule(Rule("other_state", "pass", lambda turn: None))
    with pytest.raises(ValueError, match="no rule for 'nothing'"):
        with_rule(Rule("mine", "pass", lambda turn: None), before="nothing")
    with pytest.raises(ValueError, match="choose one of: paper, release"):
        diagnose([], "papers")
    with pytest.raises(ValueError, match="utility must be positive"):
        labels.declare("mine", 0.0)
    with pytest.raises(ValueError, match="already declared"):
        labels.declare("pass", 3.0)


calls = st.builds(
    CallEvidence,
    name=st.sampled_from(["ls", "cd"]),
    arguments=st.dictionaries(st.sampled_from("ab"), st.integers() | st.text(max_size=3), max_size=2),
    available=st.booleans(),
    violations=st.sampled_from([(), (BAD,)]),
    error=st.sampled_from([None, "unavailable", "signature", "execution", "deadline"]),
    result=st.sampled_from(["{}", '{"error": "x"}']),
)
actions = st.builds(
    ActionEvidence,
    calls=st.lists(calls, max_size=3).map(tuple),
    refusals=st.sampled_from([(), ("bad",)]),
    truncated=st.booleans(),
)
verdicts = st.sampled_from([None, True, False])
turns = st.builds(
    TurnEvidence,
    turn=st.integers(0, 7),
    expected_calls=st.integers(0, 3),
    actions=st.lists(actions, max_size=4).map(tuple),
    stop=st.sampled_from(["answered", "step_limit", "length", "parse_error", "not_reached", "open"]),
    instances_match=verdicts,
    state_match=verdicts,
    response_match=verdicts,
    feedback_before=st.booleans(),
    reference_error=st.sampled_from([None, "x"]),
    needed=st.sampled_from([(), ("cd", "ls")]),
    needed_writes=st.sampled_from([(), ("ls",)]),
    absent=st.sampled_from([(), ("cd", "cd")]),
    blame=st.sampled_from([None, "own", "inherited"]),
)


@given(st.lists(turns, max_size=4), st.sampled_from(["paper", "release"]))
def test_any_evidence_gets_labels_of_the_taxonomy_and_survives_json(episode, taxonomy):
    found = diagnose(episode, taxonomy)
    assert all({d.label, *d.signals} <= {*LABELS[taxonomy], UNJUDGED} for d in found)
    assert all(d.signals[0] == d.label for d in found if d.signals)
    written = json.dumps([asdict(turn) for turn in episode])
    assert diagnose(EVIDENCE.validate_json(written), taxonomy) == found
    assert TypeAdapter(list[Diagnosis]).validate_json(json.dumps([asdict(d) for d in found])) == list(found)


@given(turns)
def test_a_failure_is_never_labelled_a_success(evidence):
    label = diagnose_turn(evidence).label
    if False in (evidence.state_match, evidence.response_match, evidence.instances_match):
        assert label != "pass"
    if evidence.calls:
        assert label != "correct_abstention"


def test_every_rule_has_a_declared_label():
    for order in LABELS.values():
        assert [labels.get(label).name for label in order] == order


def test_a_label_that_an_environment_cannot_ground_is_not_given():
    evidence = turn(action(call()), SAY, expected=0)
    assert diagnose([evidence], off=("spurious_tool_call",))[0].label == UNJUDGED
