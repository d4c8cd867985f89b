"""Levels: training never uses what is held out, and each level uses what it says."""

import itertools
import random
import re

import pytest

from shelf.testbed.synthesis.held_out import HELD_OUT_PHRASES, divide, pair_is_reserved, word_is_held_out
from shelf.testbed.synthesis.phrases import phrasebook
from shelf.testbed.synthesis.sampler import SamplerSettings, sample_path
from shelf.testbed.synthesis.stage import RejectedDraw
from shelf.testbed.synthesis.values import PEOPLE, Values, word_list


def paths(level, count):
    rng, found = random.Random(11), []
    while len(found) < count:
        try:
            found.append(sample_path(rng, level, SamplerSettings()))
        except RejectedDraw:
            continue
    return found


def pairs(path):
    # The turn that gives a value repeats the clause of the turn that left it out.
    turns = [turn for turn in path.turns if turn is not None and turn.asking != "value"]
    operations = [clause.operation for turn in turns for clause in turn.clauses]
    return list(itertools.pairwise(operations))


@pytest.mark.parametrize("level", ["train", "values", "phrases"])
def test_only_the_level_paths_has_reserved_pairs(level):
    assert not any(pair_is_reserved(*pair) for path in paths(level, 150) for pair in pairs(path))


def test_every_task_of_the_level_paths_has_a_reserved_pair():
    assert all(any(pair_is_reserved(*pair) for pair in pairs(path)) for path in paths("paths", 150))


@pytest.mark.parametrize("held_out", [False, True])
def test_values_are_of_words_of_one_side(held_out):
    values = Values(random.Random(0), held_out)
    known = {word.lower() for word in (*word_list(), *PEOPLE)}
    drawn = [values.word() for _ in range(500)] + [values.person() for _ in range(200)]
    assert {word_is_held_out(word) for word in drawn} == {held_out}
    assert any(word.lower() not in known for word in drawn) and any(word in known for word in drawn)


def phrase_lists():
    """Every list of the phrasebook."""
    return [phrases for table in vars(phrasebook()).values() for phrases in table.values()]


def variants(phrase):
    """Every text that a phrase can give."""
    parts = re.split(r"\[([^\[\]]*\|[^\[\]]*)\]", phrase.text)
    choices = [part.split("|") if odd % 2 else [part] for odd, part in enumerate(parts)]
    return frozenset("".join(chosen) for chosen in itertools.product(*choices))


def test_training_tasks_hold_no_held_out_word_of_the_list(tasks_by_level):
    held = {word for word in word_list() if word_is_held_out(word)}
    fixed = " ".join(text for phrases in phrase_lists() for p in phrases.training for text in variants(p))
    held -= set(re.findall("[a-z]+", fixed.lower()))
    for level, tasks in tasks_by_level.items():
        texts = " ".join(f"{task.users} {task.config}" for task in tasks)
        used = held & set(re.findall("[a-z]+", texts.lower()))
        assert bool(used) == (level != "train"), (level, used)


def test_no_text_is_on_both_sides():
    training = {text for each in phrase_lists() for phrase in each.training for text in variants(phrase)}
    held_out = {text for each in phrase_lists() for phrase in each.held_out for text in variants(phrase)}
    assert not training & held_out
    assert 0.15 < len(held_out) / (len(held_out) + len(training)) < 0.3
    assert all(each.training and each.held_out for each in phrase_lists())


def test_levels_draw_phrases_from_the_sides_that_they_say():
    for phrases in phrase_lists():
        training = {text for phrase in phrases.training for text in variants(phrase)}
        for level, share in HELD_OUT_PHRASES.items():
            drawn = [phrases.draw(random.Random(seed), share)[0] in training for seed in range(30)]
            if level in ("train", "values"):
                assert all(drawn)
            elif level == "paths":
                assert not any(drawn)
            else:
                assert True in drawn


def test_a_phrase_of_two_lists_has_one_side():
    shared = [f"phrase {number}" for number in range(8)]
    divided = divide({"one": [*shared, "a", "b"], "two": [*shared, "c", "d", "e", "f"]})
    assert not set(divided["one"][0]) & set(divided["two"][1])
    assert not set(divided["one"][1]) & set(divided["two"][0])


def test_a_list_that_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match="The phrases few cannot be divided"):
        divide({"few": ["alone"]})
