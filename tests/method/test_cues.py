"""Omega as a value and what it adds to observations."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_service.environments.bfcl.catalog import CLASSES, documents
from seal.method.interface.cues import Omega, catalogue
from seal.method.interface.observation import documents_of, observe_reveal, observe_start
from seal.method.interface.wording import PromptWording

FILES = documents("GorillaFileSystem")
ALL_TOOLS = tuple(document for name in CLASSES for document in documents(name))
TOOLS = {document["name"]: document for document in ALL_TOOLS}
FULL = Omega.of(list(catalogue()))
omegas = st.sets(st.sampled_from(sorted(catalogue()))).map(Omega.of)


MODES = {compact: PromptWording("Write [TOOL()].", compact=compact) for compact in (False, True)}


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
        (None, "omega is null"),
        ({"version": 0, "cues": {}, "mode": 1}, "omega.mode is not a setting"),
        ({"cues": {}}, "omega.version has no value"),
        ({"version": True, "cues": {}}, "omega.version is true; it must be a valid integer"),
        ({"version": 0}, "omega.cues has no value"),
        ({"version": 0, "cues": {"*": "caution"}}, r"omega\.cues\.\* is 'caution'; it must be a list"),
        ({"version": 0, "cues": {"*": ["sing"]}}, "unknown cue 'sing'"),
    ],
)
def test_bad_omegas_are_refused_by_name(data, message):
    with pytest.raises(ValueError, match=message):
        Omega.from_json(data)


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
    start = observe_start("SYSTEM", FILES, omega, "base", MODES[compact])
    assert start.startswith("SYSTEM")
    active = omega.for_category("base")
    for cue in catalogue().values():
        if cue.kind == "guideline":
            assert ((cue.compact if compact else cue.text) in start) == (cue.name in active)
    assert start == observe_start("SYSTEM", FILES, omega, "base", MODES[compact])


@pytest.mark.parametrize("compact", [True, False])
def test_an_empty_omega_changes_nothing(compact):
    assert observe_start("S", FILES, Omega(), "base", MODES[compact]) == "S"
    assert observe_reveal("S", FILES, Omega(), "base", MODES[compact]) == "S"
    assert observe_start("S", FILES, Omega.of({"base": ["caution"]}), "miss_func", MODES[compact]) == "S"


def test_schema_parts_are_switchable():
    lights = (TOOLS["setHeadlights"],)

    def line(*cues):
        return observe_start("", lights, Omega.of(cues), "base", MODES[False]).splitlines()[-1]

    assert line("schema_required") == "- setHeadlights: mode (required)"
    assert line("schema_types") == "- setHeadlights: mode [string]"
    assert line("schema_values") == "- setHeadlights: mode [one of on, off, auto]"
    assert line("schema_required", "schema_types", "schema_values") == (
        "- setHeadlights: mode (required) [string; one of on, off, auto]"
    )
    assert "setHeadlights" not in observe_start("", lights, Omega.of(["schema_format"]), "base", MODES[False])


def test_nested_arguments_are_told():
    text = observe_start("", (TOOLS["edit_ticket"],), Omega.of(["schema_types"]), "base", MODES[False])
    assert "updates [dict of title string, description string, status string, priority integer]" in text


def test_the_compact_schema_is_capped_and_names_only_tools_with_required_arguments():
    text = observe_start("", (*FILES[:3], TOOLS["ls"]), Omega.of(["schema_required"]), "base", MODES[True])
    assert text == "\nRequired: cat file_name; cd folder; cp source destination"
    assert len(observe_start("", ALL_TOOLS, Omega.of(["schema_required"]), "base", MODES[True])) <= 601
    assert observe_start("S", (TOOLS["ls"],), Omega.of(["schema_required"]), "base", MODES[True]) == "S"


@pytest.mark.parametrize("compact", [True, False])
def test_schema_cues_speak_of_the_named_tools_or_of_as_many_others(compact):
    every = Omega.of(["schema_required"])

    def told(omega):
        assert Omega.from_json(json.loads(json.dumps(omega.to_json()))) == omega
        text = observe_start("", FILES, omega, "base", MODES[compact])
        assert observe_reveal("", FILES, omega, "base", MODES[compact]).splitlines()[1:] == [
            line for line in text.splitlines() if line.startswith(("Required: ", "- "))
        ]
        return {name for name in TOOLS if re.search(rf"(?<![\w']){name} [a-z]|- {name}:", text)}

    own = replace(every, tools=("cp",))
    assert told(every) > told(own) == {"cp"}
    others = told(replace(own, others=2))
    assert len(others) == 2 and "cp" not in others and others == told(replace(own, others=2))
    assert told(replace(every, tools=())) == set()
    assert told(replace(own, others=len(TOOLS))) == told(every) - {"cp"}, "no more than there are"
    assert len({every.digest, own.digest, replace(own, others=1).digest}) == 3


def test_a_control_shows_as_many_documents_as_what_it_controls_where_a_tool_is_revealed():
    own = replace(Omega.of(["schema_required"]), tools=("cp", "mv"))
    first = tuple(each for each in FILES if each["name"] != "mv")
    later = (TOOLS["mv"], *[each for each in ALL_TOOLS if each not in FILES][:9])
    shown = [[len(documents_of(omega, tools)) for tools in (first, later)] for omega in (own, replace(own, others=2))]
    assert shown == [[1, 1], [1, 1]]


def test_the_whole_compact_rendering_stays_small():
    assert len(observe_start("", ALL_TOOLS, FULL, "base", MODES[True])) < 1200


def test_revealed_tools_bring_their_schema_and_no_advice():
    text = observe_reveal("New tools: cp", (TOOLS["cp"],), FULL, "base", MODES[True])
    assert text == "New tools: cp\nRequired: cp source destination"
    assert "- cp: source (required)" in observe_reveal("New", (TOOLS["cp"],), FULL, "base", MODES[False])
