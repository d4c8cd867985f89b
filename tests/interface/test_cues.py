"""Omega as a value and what it adds to observations."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_service.environments.bfcl.catalog import CLASSES, documents
from seal.diagnosis.evidence import ActionEvidence, CallEvidence
from seal.diagnosis.schema import violations
from seal.interface.cues import (
    Omega,
    catalogue,
    observe_feedback,
    observe_reveal,
    observe_start,
)
from seal.interface.errors import error_class
from seal.interface.sampling import random_omega

FILES = documents("GorillaFileSystem")
ALL_TOOLS = tuple(document for name in CLASSES for document in documents(name))
TOOLS = {document["name"]: document for document in ALL_TOOLS}
FULL = Omega.of(list(catalogue()))
omegas = st.integers(0, 10**6).map(lambda seed: random_omega(random.Random(seed)))


def failed(name="cd", error="execution", result="", arguments=None, available=True):
    arguments = arguments or {}
    broken = violations(arguments, TOOLS[name]) if name in TOOLS and error == "signature" else ()
    return ActionEvidence((CallEvidence(name, arguments, available, broken, error, result),))


def feedback(failure, *cues, compact=False, tools=FILES):
    return observe_feedback("OBS", failure, tools, Omega.of(cues), "base", compact)


# --- the value -----------------------------------------------------------------------


@given(omegas)
def test_omega_survives_json_and_its_digest_is_of_its_content(omega):
    again = Omega.from_json(json.loads(json.dumps(omega.to_json())))
    assert again == omega and again.digest == omega.digest and hash(again) == hash(omega)
    assert Omega(omega.version + 5, omega.active).digest == omega.digest
    assert len(omega.digest) == 16 and int(omega.digest, 16) >= 0


def test_digests_differ_with_the_cues():
    digests = {Omega.of([name]).digest for name in catalogue()} | {
        Omega().digest,
        Omega.of({"base": ["caution"]}).digest,
    }
    assert len(digests) == len(catalogue()) + 2


def test_the_order_of_cues_does_not_matter():
    assert Omega.of(["caution", "schema_types"]) == Omega.of(["schema_types", "caution", "caution"])


def test_a_category_with_an_entry_of_its_own_does_not_follow_the_rest():
    omega = Omega.of({"*": ["caution"], "base": ["recover"], "miss_func": []})
    assert omega.for_category("base") == ("recover",)
    assert omega.for_category("miss_func") == ()
    assert omega.for_category("long_context") == ("caution",)
    assert omega.cues == ("caution", "base/recover")
    assert Omega.from_json(omega.to_json()) == omega


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "expected an object"),
        ({"version": 0, "cues": {}, "mode": 1}, "unknown key 'mode'"),
        ({"cues": {}}, "version must be a whole number"),
        ({"version": True, "cues": {}}, "version must be a whole number"),
        ({"version": 0}, "cues must be an object"),
        ({"version": 0, "cues": {"*": "caution"}}, r"cues\['\*'\] must be a list"),
        ({"version": 0, "cues": {"*": ["sing"]}}, "unknown cue 'sing'"),
    ],
)
def test_bad_omegas_are_refused_by_name(data, message):
    with pytest.raises(ValueError, match=message):
        Omega.from_json(data)


def test_random_omegas_depend_on_the_seed_alone_and_meet_every_cue():
    first = [random_omega(random.Random(seed)) for seed in range(50)]
    assert first == [random_omega(random.Random(seed)) for seed in range(50)]
    assert {cue for omega in first for cue in omega.cues} == set(catalogue())


# --- the data file -------------------------------------------------------------------


def test_each_failure_label_has_at_most_one_guideline_and_short_compact_wording():
    guidelines = [cue.label for cue in catalogue().values() if cue.kind == "guideline"]
    assert len(guidelines) == len(set(guidelines))
    for cue in catalogue().values():
        assert cue.kind in ("schema", "feedback", "guideline")
        assert len(cue.compact.split()) <= 12
        assert cue.text and (cue.compact or cue.kind == "schema")


def test_the_labels_of_the_paper_activate_what_it_says():
    by_label = {}
    for cue in catalogue().values():
        by_label.setdefault(cue.label, set()).add(cue.kind)
    assert by_label["argument_mismatch"] >= {"schema"}
    assert by_label["recovery_failure"] >= {"feedback"}
    assert by_label["invalid_tool_call"] >= {"schema", "feedback"}
    for label in ("missing_tool_call", "spurious_tool_call", "state_mismatch"):
        assert by_label[label] == {"guideline"}


# --- phi_schema and phi_cap ----------------------------------------------------------


@given(omegas, st.booleans())
def test_observations_only_grow_and_only_by_active_cues(omega, compact):
    start = observe_start("SYSTEM", FILES, omega, "base", compact)
    assert start.startswith("SYSTEM")
    active = omega.for_category("base")
    for cue in catalogue().values():
        if cue.kind == "guideline":
            assert ((cue.compact if compact else cue.text) in start) == (cue.name in active)
    assert start == observe_start("SYSTEM", FILES, omega, "base", compact)


@pytest.mark.parametrize("compact", [True, False])
def test_an_empty_omega_changes_nothing(compact):
    broken = failed(error="unavailable", available=False)
    assert observe_start("S", FILES, Omega(), "base", compact) == "S"
    assert observe_reveal("S", FILES, Omega(), "base", compact) == "S"
    assert observe_feedback("S", broken, FILES, Omega(), "base", compact) == "S"
    assert observe_start("S", FILES, Omega.of({"base": ["caution"]}), "miss_func", compact) == "S"


def test_schema_parts_are_switchable():
    lights = (TOOLS["setHeadlights"],)

    def line(*cues):
        return observe_start("", lights, Omega.of(cues), "base", False).splitlines()[-1]

    assert line("schema_required") == "- setHeadlights: mode (required)"
    assert line("schema_types") == "- setHeadlights: mode [string]"
    assert line("schema_values") == "- setHeadlights: mode [one of on, off, auto]"
    assert line("schema_required", "schema_types", "schema_values") == (
        "- setHeadlights: mode (required) [string; one of on, off, auto]"
    )
    assert "setHeadlights" not in observe_start("", lights, Omega.of(["schema_format"]), "base", False)


def test_nested_arguments_are_told():
    text = observe_start("", (TOOLS["edit_ticket"],), Omega.of(["schema_types"]), "base", False)
    assert "updates [dict of title string, description string, status string, priority integer]" in text


def test_the_compact_schema_is_capped_and_names_only_tools_with_required_arguments():
    text = observe_start("", (*FILES[:3], TOOLS["ls"]), Omega.of(["schema_required"]), "base", True)
    assert text == "\nRequired: cat file_name; cd folder; cp source destination"
    assert len(observe_start("", ALL_TOOLS, Omega.of(["schema_required"]), "base", True)) <= 601
    assert observe_start("S", (TOOLS["ls"],), Omega.of(["schema_required"]), "base", True) == "S"


def test_the_whole_compact_rendering_stays_small():
    assert len(observe_start("", ALL_TOOLS, FULL, "base", True)) < 1200


def test_revealed_tools_bring_their_schema_and_no_advice():
    text = observe_reveal("New tools: cp", (TOOLS["cp"],), FULL, "base", True)
    assert text == "New tools: cp\nRequired: cp source destination"
    assert "- cp: source (required)" in observe_reveal("New", (TOOLS["cp"],), FULL, "base", False)


# --- phi_err -------------------------------------------------------------------------


def test_a_successful_action_gets_no_feedback():
    fine = ActionEvidence((CallEvidence("ls", {}, True, result="{}"),))
    assert observe_feedback("OBS", fine, FILES, FULL, "base", False) == "OBS"


def test_an_unavailable_tool_is_told_with_the_tools_that_exist():
    copy = failed("copy", "unavailable", available=False)
    assert feedback(copy, "feedback_error") == "OBS\ncopy is not one of the available tools."
    assert "Tools that exist now: cat, cd, cp," in feedback(copy, "feedback_tools")
    assert feedback(copy, "feedback_tools", compact=True).startswith("OBS\nTools: cp ")


def test_the_list_of_tools_appears_only_when_one_was_missed():
    assert feedback(failed(), "feedback_tools") == "OBS"


def test_a_broken_schema_is_told_by_argument():
    text = feedback(failed("cp", "signature", arguments={"source": 1, "to": "x"}), "feedback_error")
    assert "required argument destination is missing" in text
    assert "source must be a string" in text and "to is not an argument" in text
    short = feedback(failed("cp", "signature", arguments={"source": 1}), "feedback_error", compact=True)
    assert short == "OBS\ncp: required argument destination is missing."


def test_a_refused_signature_tells_what_the_tool_takes():
    action = ActionEvidence((CallEvidence("wc", {}, True, (), "signature", "Error"),))
    assert "it takes file_name; optional: mode" in feedback(action, "feedback_error")


def test_parse_errors_and_cut_messages_differ():
    assert "could not be read" in feedback(ActionEvidence(refusals=("x",)), "feedback_error")
    assert "cut by the length limit" in feedback(ActionEvidence(refusals=("x",), truncated=True), "feedback_error")


def test_a_failure_that_only_the_text_tells_gets_feedback():
    action = ActionEvidence((CallEvidence("ticket_login", {}, True, result='{"success": false}'),))
    text = observe_feedback("OBS", action, (TOOLS["ticket_login"],), FULL, "base", False)
    assert "ticket_login ran and reported an error" in text and "answer in plain text" in text


def test_text_of_the_policy_is_never_read_as_a_template():
    text = feedback(failed("{tools}{detail}", "unavailable", available=False), "feedback_error", "feedback_tools")
    assert "{tools}{detail} is not one of the available tools." in text


def test_feedback_stays_short_whatever_the_policy_wrote():
    monster = ActionEvidence(
        tuple(CallEvidence("x" * 9000 + str(i), {}, False, (), "unavailable") for i in range(50)), ("r" * 9000,)
    )
    assert len(feedback(monster, "feedback_error", "feedback_tools", "feedback_answer")) < 1500
    assert len(feedback(monster, "feedback_error", "feedback_tools", "feedback_answer", compact=True)) < 250


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ('{"error": "User not authenticated. Please log in to place an order."}', "login"),
        ("['Error: User not authenticated. Please log in to view the watchlist.']", "login"),
        ('{"error": "cd: a: Unsupported path. Only one folder level at a time is supported."}', "path"),
        ('{"error": "cat: \'x\': No such file or directory"}', "not_found"),
        ('{"error": "Booking not found"}', "not_found"),
        ('{"error": "touch: cannot touch \'x\': File exists"}', "exists"),
        ('{"error": "Pedal position must be between 0 and 1."}', "value"),
        ('{"error": "Insufficient funds"}', "limit"),
        ('{"error": "All doors must be locked before starting the engine. Here are"}', "order"),
        ("Error during execution: division by zero", "execution"),
    ],
)
def test_classes_of_execution_errors(result, expected):
    assert error_class(result) == expected
