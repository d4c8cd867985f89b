"""Omega as a file: what it keeps, what it refuses, and what a run that starts with it shows."""

import json

import pytest

from seal.interface.artefact import InterfaceArtefact, read_artefact
from seal.interface.cues import Omega
from seal.settings.interface import EvolveSettings

OMEGA = Omega.of(("caution", "recover"), 5)


def artefact(omega: Omega = OMEGA, **changes) -> InterfaceArtefact:
    known = {"run": "a", "step": 7, "prompt_mode": "compact", "taxonomy": "paper", "digest": omega.digest, "seal": "1"}
    return InterfaceArtefact(**{**known, "omega": omega, **changes})


def test_it_survives_its_file(tmp_path):
    for omega in (OMEGA, Omega(), Omega.of({"*": ["recover"], "base": []}, 2)):
        path = tmp_path / "interface.json"
        path.write_text(json.dumps(artefact(omega).to_json()))
        assert read_artefact(path) == artefact(omega)


def test_another_wording_is_said():
    assert "words cues differently" in str(artefact(digest="0" * 16))
    assert str(artefact()) == "interface loaded: Omega 5 of a after step 7 (recover, caution)"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1], "is not the interface of a run"),
        ({"version": 1, "cues": {}}, "is not the interface of a run"),
        (artefact().to_json() | {"format": 2}, "has format 2 and this SEAL reads format 1"),
        (artefact().to_json() | {"extra": 2}, "unknown key 'extra'"),
        ({k: v for k, v in artefact().to_json().items() if k != "taxonomy"}, "missing or unknown key 'taxonomy'"),
        (artefact().to_json() | {"step": "7"}, "step='7'"),
        (artefact().to_json() | {"omega": {"version": 1, "cues": {"*": ["song"]}}}, "unknown cue 'song'"),
        (artefact().to_json() | {"omega": {"version": -1, "cues": {}}}, "version must be a whole number"),
        ("{", "cannot be read"),
        (None, "does not exist"),
    ],
)
def test_a_file_that_is_none_is_refused_in_one_sentence(tmp_path, value, said):
    path = tmp_path / "interface.json"
    if value is not None:
        path.write_text(value if isinstance(value, str) else json.dumps(value))
    with pytest.raises(ValueError, match=said) as error:
        read_artefact(path)
    assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "evolving", "said"),
    [
        (
            {"prompt_mode": "bfcl_qwen_fc"},
            {},
            "prompt mode bfcl_qwen_fc and this run has env_service.prompt_mode=compact",
        ),
        ({"taxonomy": "release"}, {}, "seal.diagnosis.taxonomy=paper"),
        ({}, {"kinds": ("feedback",)}, "turns on caution, which this run leaves out"),
        ({"omega": Omega.of(("right_service",))}, {}, "turns on right_service"),
        ({"omega": Omega.of({"tau2_telecom": ["recover"]})}, {}, "cues of its own for tau2_telecom"),
    ],
)
def test_an_omega_that_does_not_fit_a_run_is_refused(changes, evolving, said):
    with pytest.raises(ValueError, match=said):
        artefact(**changes).require_fit(EvolveSettings(**evolving), "paper", "compact")
    artefact().require_fit(EvolveSettings(), "paper", "compact")


def test_a_run_starts_with_its_cues_and_its_own_permanent_ones():
    only = EvolveSettings(kinds=("guideline",))
    assert artefact().start(only) == OMEGA
    shown = artefact().start(EvolveSettings(kinds=("guideline", "schema")))
    assert set(shown.for_category("base")) == {*OMEGA.cues, "schema_required", "schema_types", "schema_values",
                                               "schema_format"}  # fmt: skip
