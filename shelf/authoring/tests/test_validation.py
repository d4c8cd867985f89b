"""The diagnosis on runs with one known fault: labels, and whose fault each failed turn is."""

import time
from itertools import islice

import pytest

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.tools import WRITES, Toolbox
from env_service.environments.kit.blame import blame
from seal.method import labels
from seal.method.diagnosis.evidence import CallEvidence
from seal.method.diagnosis.rules import diagnose, taxonomy_of
from shelf.authoring.tests.bfcl_faults import SILENT, WANTED, InjectedFault, faults, writers
from shelf.authoring.tests.confusion import Confusion, Judged
from shelf.authoring.tests.validation import play, validate

TASKS = list(load_tasks().values())
QUIRKS = {"multi_turn_miss_func_49"}
"""Its reference calls a tool before it is revealed."""


def agreement(tasks):
    judged = list(validate(tasks))
    matrix = Confusion.of(judged)
    shares = {label: (matrix.precision(label), matrix.recall(label)) for label in matrix.labels()}
    for label, pair in shares.items():
        print(f"{label}: {sum(turn.expected == label for turn in judged)} faults, precision and recall {pair}")
    return judged, shares


def test_a_sample_of_faults_gets_the_labels_of_the_definitions():
    judged, shares = agreement(TASKS[::16])
    assert len({turn.kind for turn in judged}) == len(WANTED) + len(SILENT)
    assert set(shares) == {rule.label for rule in taxonomy_of("paper").rules} - labels.BROKEN
    assert {label: pair for label, pair in shares.items() if min(pair) < 0.95} == {}


@pytest.mark.slow
def test_every_label_reaches_the_required_precision_and_recall_over_all_references():
    judged, shares = agreement(TASKS)
    assert len(judged) > 13_000
    assert {label: pair for label, pair in shares.items() if min(pair) < 0.97} == {}


def one_own_turn(tasks):
    """Check that of a run that one fault fails, exactly the faulty turn is its own; (own, inherited) counts."""
    own = inherited = 0
    for task in tasks:
        for fault in faults(task):
            blames = [turn.blame for turn in play(task, fault)]
            if fault.cut or fault.loop:
                assert "own" not in blames, "a budget cut is nobody's fault"
            elif any(blames):
                assert [turn for turn, found in enumerate(blames) if found == "own"] == [fault.turn], (task.id, fault)
                own, inherited = own + 1, inherited + blames.count("inherited")
    return own, inherited


def test_with_one_fault_exactly_one_turn_is_to_blame():
    own, inherited = one_own_turn(TASKS[::16])
    assert own > 350 and inherited > 250


@pytest.mark.slow
def test_with_one_fault_exactly_one_turn_is_to_blame_in_every_task():
    one_own_turn(task for task in TASKS if task.id not in QUIRKS)


def test_a_turn_that_passed_but_left_the_folder_is_to_blame_for_what_fails_later():
    task = load_tasks()["multi_turn_base_0"]
    turns = BfclEnvironment().calls(task)
    turns[0].append(("cd", {"folder": ".."}))
    found = play(task, InjectedFault("another folder", 0, turns))
    assert [label.label for label in diagnose(found)] == ["pass"] + ["recovery_failure"] * 3
    assert [turn.blame for turn in found] == ["own"] + ["inherited"] * 3


def scene_of(task):
    return BfclEnvironment().task_scene(task, {"enforce_available_tools": False})


def evidence_of(turns):
    return [[CallEvidence(*call, True) for call in calls] for calls in turns]


def test_a_failure_that_cannot_be_replayed_in_time_is_its_turn_s_own():
    task = load_tasks()["multi_turn_base_0"]
    scene, turns, failed = scene_of(task), BfclEnvironment().calls(task), [False, True, True, True]
    turns[0].append(("cd", {"folder": ".."}))
    assert blame(scene, evidence_of(turns), failed) == ("own", "inherited", "inherited", "inherited")
    # A turn that made the reference's calls inherited its failure, whatever a replay would tell of the others.
    assert blame(scene, evidence_of(turns), failed, seconds=-1.0) == (None, "own", "inherited", "inherited")
    turns[2].append(("ls", {}))
    assert blame(scene, evidence_of(turns), failed, seconds=-1.0) == (None, "own", "own", "inherited")


def test_slow_calls_are_replayed_no_longer_than_allowed():
    task = next(task for task in TASKS if "MathAPI" in task.involved_classes and all(task.reference))
    slow = ("square_root", {"number": 2, "precision": 20_000})
    began = time.process_time()
    Toolbox(task).call(*slow)
    one = time.process_time() - began
    turns = evidence_of([[slow] * 50] * len(task.reference))
    began = time.process_time()
    assert set(blame(scene_of(task), turns, [True] * len(turns), seconds=5 * one)) == {"own"}
    assert time.process_time() - began < 25 * one


def test_the_tools_that_write_are_those_that_were_seen_to_write():
    assert writers() <= WRITES
    used = {name for task in TASKS for turn in BfclEnvironment().calls(task) for name, _ in turn}
    assert used & WRITES == writers()


def test_the_matrix_counts_pairs():
    pairs = [("pass", "pass")] * 3 + [("pass", "state_mismatch"), ("state_mismatch", "state_mismatch")]
    matrix = Confusion.of(Judged("t", 0, "k", *pair) for pair in pairs)
    assert (matrix.precision("pass"), matrix.recall("pass")) == (1.0, 0.75)
    assert (matrix.precision("state_mismatch"), matrix.recall("state_mismatch")) == (0.5, 1.0)
    assert matrix.labels(("state_mismatch",)) == ("state_mismatch", "pass")


def test_a_seed_fixes_the_faults():
    assert list(islice(validate(TASKS[::100]), 20)) == list(islice(validate(TASKS[::100]), 20))
