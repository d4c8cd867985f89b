"""Variants: the laws of exchange, on any values, and of acceptance, on real tasks."""

import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.splits import TRAIN_SCENARIOS
from shelf.testbed.policy.corpus import (
    CorpusSettings,
    build_corpus,
    fixed_words,
    run_reference,
    script_of,
    vocabulary,
    with_script,
)
from shelf.testbed.policy.dialogue import play_reference, reference_passes
from shelf.testbed.policy.lessons import LessonSettings
from shelf.testbed.policy.variants import (
    Exchange,
    Script,
    VariantMaker,
    candidates,
    exchange_script,
    exchange_text,
    exchange_value,
    leaves,
    occurs,
    readable,
    response_shape,
    similar,
)
from shelf.testbed.synthesis.path import PathCall

WORDS = ("apple", "river", "stone", "cloud")
values = st.one_of(
    st.integers(-(10**6), 10**6),
    st.decimals(-1000, 1000, places=2).map(float),
    st.from_regex(r"[A-Za-z]{1,8}(_[a-z0-9]{1,5})?(\.(txt|pdf|csv))?", fullmatch=True),
    st.dates().map(str),
)
trees = st.recursive(
    st.one_of(values, st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text("abcxyz", max_size=4), inner)),
    max_leaves=12,
)


def shape(value):
    """Letters as a, capital words as their own class, digits as 0."""
    text = re.sub(r"[0-9]", "0", repr(value))
    text = re.sub(r"[A-Z]{2,}", "AA", text)
    text = re.sub(r"[A-Z][a-zA-Z]*", lambda m: m[0] if m[0] == "AA" else "Aa", text)
    return re.sub(r"(?<![A-Za-z.])[a-z]+", "a", text)


def structure(value):
    if isinstance(value, dict):
        return [structure(item) for item in value.values()]
    if isinstance(value, list | tuple):
        return [structure(item) for item in value]
    return type(value).__name__


@given(values, st.integers())
def test_a_new_value_has_the_type_and_written_shape_of_the_old(value, seed):
    new = similar(value, WORDS, random.Random(seed))
    assert type(new) is type(value)
    if isinstance(value, int):
        assert len(str(new)) == len(str(value))
    elif isinstance(value, float):
        assert re.sub(r"\d", "0", f"{new:.2f}").lstrip("-") == re.sub(r"\d", "0", f"{value:.2f}").lstrip("-")
    else:
        assert re.findall(r"[^A-Za-z0-9]", new) == re.findall(r"[^A-Za-z0-9]", value)
        assert new.rpartition(".")[2] == value.rpartition(".")[2] or "." not in value


@given(trees)
def test_no_exchange_changes_nothing(tree):
    assert exchange_value(tree, []) == tree


@given(trees, values, values)
def test_exchanges_keep_structure_and_types(tree, old, new):
    if isinstance(old, str) != isinstance(new, str):
        new = old
    changed = exchange_value(tree, [Exchange(old, new)])
    keys_met = len(json.dumps(changed, default=str)) and structure(changed) == structure(tree)
    assert keys_met or len(list(leaves(changed))) < len(list(leaves(tree)))  # two keys may become one


@given(st.integers(0, 9), st.integers(10, 99), st.integers(10, 99))
def test_two_values_can_swap_in_one_pass(turn, first, second):
    text = f"turn {turn}: {first} then {second}"
    if first != second:
        swapped = exchange_text(text, [Exchange(first, second), Exchange(second, first)])
        assert swapped == f"turn {turn}: {second} then {first}"


def test_numbers_are_found_as_people_write_them():
    text = "Pay 1,500 dollars, that is 1500.0 and not 15000, 21500 or 1500.75."
    assert exchange_text(text, [Exchange(1500.0, 2600.0)]) == (
        "Pay 2,600 dollars, that is 2600.0 and not 15000, 21500 or 1500.75."
    )


def test_a_word_inside_another_word_stays():
    assert not occurs("report", "reports and my_report")
    assert exchange_text("report.txt reports", [Exchange("report", "letter")]) == "letter.txt reports"


def test_values_that_no_text_shows_or_that_tools_prescribe_are_no_candidates():
    script = Script(
        users=("Book economy for Ann, 12 seats.",),
        config={"city": "Rome"},
        calls=(
            (PathCall("book", {"class": "economy", "name": "Ann", "n": 12, "city": "Rome", "id": "x7", "now": True}),),
        ),
    )
    assert candidates(script, frozenset({"economy"})) == ("Ann", 12, "Rome")


def test_a_variant_that_changes_the_shape_of_an_answer_is_refused():
    script = Script(users=("Open a.txt",), config={}, calls=((PathCall("open", {"name": "a.txt"}),),))

    def run(changed):
        name = changed.calls[0][0].arguments["name"]
        return ((json.dumps({"ok": 1}) if name == "a.txt" else json.dumps({"error": "none"}),),)

    maker = VariantMaker(script, run, lambda changed: True, WORDS, frozenset(), random.Random(0))
    assert maker.safe == () and maker.variant() is None


def test_a_variant_that_the_verifier_refuses_is_refused():
    script = Script(users=("Open a.txt",), config={}, calls=((PathCall("open", {"name": "a.txt"}),),))
    maker = VariantMaker(script, lambda s: (("{}",),), lambda s: False, WORDS, frozenset(), random.Random(0))
    assert maker.safe == ("a.txt",) and maker.variant() is None


@pytest.mark.parametrize("task_id", ["multi_turn_base_0", "multi_turn_miss_func_103", "multi_turn_miss_param_162"])
def test_real_variants_keep_every_law(task_id):
    task = load_tasks()[task_id]
    script = script_of(task)
    answers = run_reference(task, script)
    maker = VariantMaker(
        script,
        run=lambda changed: run_reference(task, changed),
        verify=lambda changed: reference_passes(with_script(task, changed)),
        words=vocabulary([task]),
        fixed=fixed_words(),
        rng=random.Random(0),
    )
    assert maker.safe
    for _ in range(3):
        variant = maker.variant()
        changed = run_reference(task, variant)
        assert variant != script
        assert [[call.name for call in turn] for turn in variant.calls] == [
            [call.name for call in turn] for turn in script.calls
        ]
        assert [list(map(response_shape, turn)) for turn in changed] == [
            list(map(response_shape, turn)) for turn in answers
        ]
        for before, after in zip(readable(script, answers), readable(variant, changed), strict=True):
            assert all(now or not then for then, now in zip(before, after, strict=True))
        assert reference_passes(with_script(task, variant))


def test_originals_pass_their_own_verdict_and_survive_rewriting():
    for task_id in ("multi_turn_base_45", "multi_turn_long_context_118", "multi_turn_miss_param_3"):
        task = load_tasks()[task_id]
        rewritten = with_script(task, exchange_script(script_of(task), []))
        assert script_of(rewritten) == script_of(task)
        assert reference_passes(rewritten)


def test_a_variants_configuration_reaches_the_simulators():
    task = load_tasks()["multi_turn_base_30"]
    script = script_of(task)
    changed = exchange_script(script, [Exchange("project", "harvest")])
    variant = with_script(task, changed)
    answers = run_reference(task, changed)
    assert changed.config != script.config
    assert [list(map(response_shape, turn)) for turn in answers] == [
        list(map(response_shape, turn)) for turn in run_reference(task, script)
    ]
    assert reference_passes(variant)
    assert answers[0][0] in play_reference(variant).messages[3]["content"]


def test_most_training_scenarios_have_variants():
    settings = CorpusSettings(scenarios=TRAIN_SCENARIOS[::5], variants=(("base", 1),))
    groups = build_corpus(settings, LessonSettings(cue_share=0.0, plain_slip_share=0.0), seed=0)
    assert sum(len(group) > 1 for group in groups) >= 12
