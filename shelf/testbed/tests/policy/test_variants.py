"""Variants: the laws of exchange, on any values, and of acceptance, on real tasks."""

import json
import random
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.splits import TRAIN_SCENARIOS
from shelf.testbed.policy.corpus import CorpusSettings, build_corpus, fixed_words, vocabulary
from shelf.testbed.policy.dialogue import parsed, reference_passes
from shelf.testbed.policy.lessons import LessonSettings
from shelf.testbed.policy.variants import (
    Exchange,
    VariantMaker,
    candidates,
    exchange_task,
    exchange_text,
    exchange_value,
    leaves,
    occurs,
    readable,
    response_shape,
    run_reference,
    similar,
)
from shelf.testbed.synthesis.path import PathCall
from tests.support.references import play_reference

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


def task_of(users, config, calls):
    """A task of the file system's with these parts."""
    task = load_tasks()["multi_turn_base_0"]
    reference = tuple(tuple(map(str, turn)) for turn in calls)
    return replace(task, users=users, initial_config=config, reference=reference)


def test_values_that_no_text_shows_or_that_tools_prescribe_are_no_candidates():
    arguments = {
        "travel_class": "economy",
        "card_id": "Ann",
        "travel_cost": 12,
        "travel_to": "Rome",
        "travel_date": "x7",
    }
    task = task_of(("Book economy for Ann, 12 seats.",), {"city": "Rome"}, ((PathCall("book_flight", arguments),),))
    assert candidates(task, frozenset({"economy"})) == ("Ann", 12, "Rome")


def test_a_value_whose_exchange_changes_the_shape_of_an_answer_is_not_safe():
    """The simulator knows some airports only: another name for one is refused."""
    places = {"travel_from": "SFO", "travel_to": "LAX", "travel_date": "2024-11-11", "travel_class": "economy"}
    task = task_of(("Price from SFO to LAX on 2024-11-11?",), {}, ((PathCall("get_flight_cost", places),),))
    task = replace(task, involved_classes=("TravelAPI",))
    assert candidates(task, frozenset()) == ("SFO", "LAX", "2024-11-11")
    maker = VariantMaker(task, WORDS, frozenset(), random.Random(0))
    assert maker.safe == ("2024-11-11",)


@pytest.mark.parametrize("task_id", ["multi_turn_base_0", "multi_turn_miss_func_103", "multi_turn_miss_param_162"])
def test_real_variants_keep_every_law(task_id):
    task = load_tasks()[task_id]
    answers = run_reference(task)
    maker = VariantMaker(task, vocabulary([task]), fixed_words(), random.Random(0))
    assert maker.safe
    for _ in range(3):
        variant = maker.variant()
        changed = run_reference(variant)
        assert variant != task
        assert [[name for name, _ in turn] for turn in parsed(variant.reference)] == [
            [name for name, _ in turn] for turn in parsed(task.reference)
        ]
        assert [list(map(response_shape, turn)) for turn in changed] == [
            list(map(response_shape, turn)) for turn in answers
        ]
        for before, after in zip(readable(task, answers), readable(variant, changed), strict=True):
            assert all(now or not then for then, now in zip(before, after, strict=True))
        assert reference_passes(variant)


def test_originals_pass_their_own_verdict_and_survive_rewriting():
    for task_id in ("multi_turn_base_45", "multi_turn_long_context_118", "multi_turn_miss_param_3"):
        task = load_tasks()[task_id]
        rewritten = exchange_task(task, [])
        assert parsed(rewritten.reference) == parsed(task.reference)
        assert reference_passes(rewritten)


def test_a_variants_configuration_reaches_the_simulators():
    task = load_tasks()["multi_turn_base_30"]
    variant = exchange_task(task, [Exchange("project", "harvest")])
    answers = run_reference(variant)
    assert variant.initial_config != task.initial_config
    assert [list(map(response_shape, turn)) for turn in answers] == [
        list(map(response_shape, turn)) for turn in run_reference(task)
    ]
    assert reference_passes(variant)
    assert answers[0][0] in play_reference(variant).messages[3]["content"]


def test_most_training_scenarios_have_variants():
    settings = CorpusSettings(scenarios=TRAIN_SCENARIOS[::5], variants=(("base", 1),))
    groups = build_corpus(settings, LessonSettings(cue_share=0.0, plain_slip_share=0.0), seed=0)
    assert sum(len(group) > 1 for group in groups) >= 12
