"""The controls: what each one preserves, what it destroys, and that a seed fixes it."""

import random
from collections import Counter

import pytest

from seal.method import controls
from seal.method import labels as vocabulary
from seal.method.controls import exchanged_names
from seal.method.diagnosis.rules import taxonomy_of
from seal.method.profile import Profile, Rollout, Tally
from seal.settings.diagnosis import DiagnosisSettings

BATCH = [
    ("pass", "state_mismatch"),
    ("missing_tool_call",),
    ("pass", "pass", "spurious_tool_call"),
    ("checker_error", "pass"),
    (),
]
MANY = [
    tuple(random.Random(f"{row}").choices(("pass", "state_mismatch", "missing_tool_call"), (5, 3, 2), k=1 + row % 4))
    for row in range(200)
]


def tally(batch):
    return Tally.of(Rollout("base", labels, 0.0) for labels in batch)


def relabel(batch, source, step=1, recent=None, seed=0, taxonomy="paper"):
    settings = DiagnosisSettings(source=source, taxonomy=taxonomy)
    recent = tally(batch) if recent is None else recent
    return controls.relabel(batch, recent, settings, taxonomy_of(taxonomy), seed, step)


def pooled(batch):
    return Counter(z for labels in batch for z in labels)


def test_the_verifier_changes_nothing():
    assert relabel(BATCH, "verifier") == BATCH


@pytest.mark.parametrize("source", ["verifier", "random", "permuted"])
def test_every_control_keeps_lengths_and_excluded_labels_and_repeats_itself(source):
    found = relabel(BATCH, source, seed=3)
    assert found == relabel(BATCH, source, seed=3)
    assert [len(labels) for labels in found] == [len(labels) for labels in BATCH]
    assert found[3][0] == "checker_error" and pooled(found)["checker_error"] == 1


def test_random_keeps_the_distribution_of_the_window_and_not_the_labels():
    window = tally([("pass", "pass", "pass", "missing_tool_call")] * 5)
    every_turn = [("state_mismatch",) * 4] * 500
    drawn = pooled(relabel(every_turn, "random", recent=window))
    assert set(drawn) == {"pass", "missing_tool_call"}
    assert drawn["pass"] / 2000 == pytest.approx(0.75, abs=0.05)
    assert relabel(MANY, "random") != relabel(MANY, "random", step=2)


@pytest.mark.parametrize("taxonomy", ["paper", "release"])
def test_permuted_gives_every_failure_another_name_utility_and_no_success(taxonomy):
    extension = taxonomy_of(taxonomy)
    names, failures = exchanged_names(extension, 5), {z for z in extension.counted if not vocabulary.get(z).success}
    assert set(names) == set(names.values()) == failures
    for label, other in names.items():
        assert vocabulary.get(label).utility != vocabulary.get(other).utility
    batch = [extension.counted]
    found = [relabel(batch, "permuted", step, seed=seed, taxonomy=taxonomy) for step, seed in ((1, 5), (9, 5), (9, 6))]
    assert found[0] == found[1] != found[2], "a run has one permutation, and another seed another one"


def test_permuted_keeps_which_turns_failed_alike():
    found = relabel(MANY, "permuted")
    assert [[z == "pass" for z in labels] for labels in found] == [[z == "pass" for z in labels] for labels in MANY]
    assert sorted(pooled(found).values()) == sorted(pooled(MANY).values())
    for before, after in zip(MANY, found, strict=True):
        assert all(z == "pass" or z != other for z, other in zip(before, after, strict=True))


def test_random_draws_from_the_window_and_not_from_the_run():
    profile = Profile(window=1)
    profile = profile.after(1, [Rollout("base", ("pass",), 1.0)] * 50)
    profile = profile.after(2, [Rollout("base", ("state_mismatch",), 0.0)] * 5)
    drawn = relabel([("pass",)] * 40, "random", step=2, recent=profile.recent())
    assert set(pooled(drawn)) == {"state_mismatch"}


def test_random_draws_from_the_batch_if_the_window_holds_none_of_its_rollouts():
    profile = Profile(window=1).after(2, []).after(1, [Rollout("base", ("pass",), 1.0)])
    assert pooled(relabel(BATCH, "random", step=2, recent=profile.recent())).keys() <= pooled(BATCH).keys()
