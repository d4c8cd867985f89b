"""A package adds a label, its cue and a weighting rule under a taxonomy of its own; other taxonomies stay."""

import importlib
import re
import sys

import pytest

from seal.launch.recipe import read_recipe
from seal.method import labels
from seal.method.diagnosis import extension as extension_module
from seal.method.diagnosis import rules as rules_module
from seal.method.diagnosis.evidence import ActionEvidence, CallEvidence, TurnEvidence
from seal.method.diagnosis.extension import Extension, Rule, extension_file
from seal.method.diagnosis.rules import diagnose, taxonomy_of, with_rule
from seal.method.interface.cues import EVERYWHERE, Omega, catalogue
from seal.method.interface.evolve import cues_in_use, evolve, initial_omega
from seal.method.interface.guard import _fixed_wording
from seal.method.interface.wording import PromptWording, placeholders
from seal.method.profile import Profile, Rollout
from seal.method.reweighting import initial_rho, weight
from seal.records.trajectory import TrajectoryRecord
from seal.settings import SealSettings
from seal.settings.interface import EvolveSettings
from seal.settings.reweighting import ReweightSettings
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from seal.training.closed_loop import ClosedLoop, mark_groups
from tests.support.extension import FOLDER, installed

CACHES = (extension_module.installed, rules_module.taxonomy_of, catalogue)
MODE = PromptWording("", compact=True)
SETTINGS = EvolveSettings()
BEFORE = (taxonomy_of("paper").rules, cues_in_use(SETTINGS), Omega.of(tuple(catalogue())).digest)


def forget() -> None:
    """Look for installed packages again."""
    importlib.invalidate_caches()
    for cached in CACHES:
        cached.cache_clear()


@pytest.fixture
def repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(labels, "_REGISTER", dict(labels._REGISTER))
    for entry in installed(tmp_path):
        monkeypatch.syspath_prepend(entry)
    forget()
    yield "repeated"
    monkeypatch.undo()
    sys.modules.pop("repeated_call", None)
    forget()


def failing(times: int) -> TurnEvidence:
    call = CallEvidence(name="cd", arguments={"folder": "nowhere"}, available=True, error="execution")
    actions = (*(ActionEvidence(calls=(call,)) for _ in range(times)), ActionEvidence())
    return TurnEvidence(turn=0, expected_calls=1, actions=actions, state_match=False, stop="answered")


def test_its_label_is_given_under_its_taxonomy_only(repeated):
    assert [d.label for d in diagnose([failing(2)], repeated)] == ["repeated_call"]
    assert diagnose([failing(1)], repeated)[0].label == diagnose([failing(2)])[0].label == "recovery_failure"
    assert initial_rho(ReweightSettings(), taxonomy_of(repeated))["repeated_call"] == 1.4
    assert "repeated_call" not in initial_rho(ReweightSettings())


def test_its_cue_turns_on_with_its_label(repeated):
    seen = [Rollout("base", ("repeated_call",), 0.0)] * 20
    profile = Profile().after(1, seen)
    start = initial_omega(SETTINGS, taxonomy_of(repeated))
    omega, _ = evolve(start, profile, SETTINGS, 1, taxonomy_of(repeated))
    assert set(omega.cues) - set(start.cues) == {"vary_calls"}
    assert evolve(start, profile, SETTINGS, 1) == (start, ())
    assert Omega.from_json(omega.to_json()) == omega and omega.digest != Omega.of(start.cues).digest
    assert any(pattern.search("Never repeat a failed call unchanged.") for pattern in _fixed_wording(MODE))


def test_its_weighting_rule_takes_the_place_of_the_mean(repeated):
    rho, labels = initial_rho(ReweightSettings(), taxonomy_of(repeated)), ("pass", "repeated_call")
    assert weight(labels, rho, ReweightSettings(), taxonomy_of(repeated)) == 1.4
    assert weight(labels, rho, ReweightSettings()) == 1.2


def test_training_weighs_by_its_rule_and_shows_its_cue(repeated):
    overrides = ["seal.diagnosis.taxonomy=repeated", "seal.reweighting.dynamic=false"]
    loop = ClosedLoop(SealSettings.of(read_recipe(HOME / "exp" / "quickstart.yaml", overrides).config))
    seen = ("pass", "repeated_call")
    rows = [TrajectoryRecord("t", "base", "base", "train", n, 0.0, labels=seen) for n in range(20)]
    weights, report = loop.step(1, rows, mark_groups(["prompt"] * 20, rows))
    assert set(weights) == {1.4} and "vary_calls" in {event.cue for event in report.record.events}


def test_other_taxonomies_stay_as_they_are(repeated):
    shipped = [name for name, cue in catalogue().items() if cue.taxonomy != repeated]
    assert (taxonomy_of("paper").rules, cues_in_use(SETTINGS), Omega.of({EVERYWHERE: shipped}).digest) == BEFORE


def test_a_recipe_chooses_it(repeated):
    quickstart = HOME / "exp" / "quickstart.yaml"
    recipe = read_recipe(quickstart, ["seal.diagnosis.taxonomy=repeated", "+seal.reweighting.rho.repeated_call=1.2"])
    assert recipe.settings.diagnosis.taxonomy == repeated
    assert extension_file(repeated) == FOLDER / "repeated_call.py" and extension_file("paper") is None
    with pytest.raises(
        LaunchError, match="unknown diagnosis taxonomy 'repeat'; choose one of: paper, release, repeated"
    ):
        read_recipe(quickstart, ["seal.diagnosis.taxonomy=repeat"])


def test_one_that_cannot_be_loaded_is_refused_only_where_it_is_chosen(repeated, monkeypatch):
    monkeypatch.setitem(sys.modules, "repeated_call", None)
    forget()
    assert "vary_calls" not in catalogue()
    with pytest.raises(ValueError, match=r"extension 'repeated' \(repeated_call:EXTENSION\) cannot be loaded"):
        diagnose([failing(2)], repeated)


def test_one_that_cannot_be_read_ends_nothing_where_it_is_not_chosen(repeated, tmp_path, monkeypatch):
    (tmp_path / "repeated_call.py").write_text("EXTENSION =", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    assert "vary_calls" not in catalogue()
    with pytest.raises(ValueError, match=r"extension 'repeated' .*cannot be loaded: SyntaxError: invalid syntax"):
        diagnose([failing(2)], repeated)


def test_one_whose_cue_has_a_taken_name_is_refused_only_where_it_is_chosen(repeated, tmp_path, monkeypatch):
    source = (FOLDER / "repeated_call.py").read_text(encoding="utf-8").replace("vary_calls", "feedback_error")
    (tmp_path / "repeated_call.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    quickstart = HOME / "exp" / "quickstart.yaml"
    assert read_recipe(quickstart, []) and catalogue()["feedback_error"].taxonomy is None
    taken = r"seal.diagnosis.taxonomy: the extension 'repeated' has a cue 'feedback_error', which exists"
    with pytest.raises(LaunchError, match=taken):
        read_recipe(quickstart, ["seal.diagnosis.taxonomy=repeated"])


SAID = {"kind": "guideline", "label": "pass", "text": "Go on."}


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (
            {"cues": {"mine": SAID | {"kind": "guidelin"}}},
            "the cue 'mine' is of kind 'guidelin'; choose one of: schema, ",
        ),
        (
            {"cues": {"mine": SAID | {"text": "Use {oops} calls."}}},
            r"the text of the cue 'mine' has {oops}, which nothing",
        ),
        (
            {"cues": {"mine": SAID | {"compact": "{tools}"}}},
            r"the compact of the cue 'mine' has {tools}, which nothing",
        ),
        ({"cues": {"mine": {"kind": "schema", "label": "pass"}}}, "the cue 'mine' has no text"),
        ({"cues": {"mine": SAID | {"label": "odd"}}}, "unknown label 'odd'"),
        (
            {"weigh": lambda labels: 1.0},
            r"weigh has the signature \(labels\); it gets the labels of a trajectory and rho",
        ),
        ({"cues": {"mine": SAID | {"text": None}}}, "expected string"),
        ({"weigh": "mean"}, "'mean' is not a callable object"),
        ({"rules": ("pass",)}, "'str' object has no attribute 'label'"),
        ({"reward": lambda: 1.0}, r"reward has the signature \(\); it gets an evaluation"),
        ({"rules": (Rule("r", "pass", lambda: None),)}, "the test of the rule 'r' has the signature"),
    ],
)
def test_a_part_that_cannot_work_is_refused_when_a_recipe_names_it(repeated, monkeypatch, parts, sentence):
    import repeated_call

    monkeypatch.setattr(repeated_call, "EXTENSION", Extension(**{"rules": taxonomy_of("paper").rules} | parts))
    forget()
    place = r"the extension 'repeated' \(repeated_call:EXTENSION\): "
    with pytest.raises(LaunchError, match=rf"seal\.diagnosis\.taxonomy: {place}{sentence}"):
        read_recipe(HOME / "exp" / "quickstart.yaml", ["seal.diagnosis.taxonomy=repeated"])
    assert "mine" not in catalogue(), "other runs go on without it"


def test_a_taxonomy_with_one_failure_has_no_permuted_control(repeated, monkeypatch):
    import repeated_call

    rules = (Rule("right", "pass", lambda turn: None), Rule("wrong", "state_mismatch", lambda turn: None))
    monkeypatch.setattr(repeated_call, "EXTENSION", Extension(rules))
    forget()
    chosen = ["seal.diagnosis.taxonomy=repeated"]
    assert read_recipe(HOME / "exp" / "quickstart.yaml", chosen)
    with pytest.raises(LaunchError, match=r"seal\.diagnosis\.source: permuted .* the repeated taxonomy has 1\."):
        read_recipe(HOME / "exp" / "quickstart.yaml", [*chosen, "seal.diagnosis.source=permuted"])


def test_the_placeholders_of_cues_are_those_that_the_interface_fills_in():
    common = set(MODE.values())
    for kind, allowed in extension_module.PLACEHOLDERS.items():
        used = {
            each for cue in catalogue().values() if cue.kind == kind for each in placeholders(cue.text + cue.compact)
        }
        assert used | common == set(allowed)


def test_several_rules_can_be_added():
    first, second = Rule("first", "pass", lambda turn: None), Rule("second", "pass", lambda turn: None)
    rules = with_rule(second, before="pass", taxonomy=with_rule(first))
    assert rules[-1] == first and [rule.name for rule in rules].index("second") == 1
    assert len(rules) == len(taxonomy_of("paper").rules) + 2


def test_the_page_prints_the_package():
    page = (HOME / "docs" / "extend.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r'```\w+ title="([^"]+)"\n(.*?)```', page, re.DOTALL))
    assert shown["repeated_call.py"] == (FOLDER / "repeated_call.py").read_text(encoding="utf-8")
    assert shown["pyproject.toml"] in (FOLDER / "pyproject.toml").read_text(encoding="utf-8")
