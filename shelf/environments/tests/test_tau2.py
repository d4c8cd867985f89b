"""tau2-bench telecom: its split, its verdict on some runs, its labels, and what the package adds at random."""

import re

import pytest

pytest.importorskip("shelf.environments.tau2", exc_type=ImportError)

from env_service.environments.base import Guard
from env_service.environments.registry import get_environment
from seal.method import labels
from shelf.authoring.conformance import conformance
from shelf.environments.tau2.faults import FAMILIES, HELD_OUT, faults_of
from shelf.environments.tests import tau2_oracle as oracle

TELECOM = get_environment("tau2_telecom")
SAMPLE = list(TELECOM.task_ids("package_base"))[::19]
ABROAD = "[mobile_data_issue]user_abroad_roaming_enabled_off[PERSONA:None]"


def test_it_conforms() -> None:
    findings = list(conformance("tau2_telecom", tasks=6))
    assert not [f"{finding.check}: {finding.detail}" for finding in findings if not finding.passed]


def test_no_fault_and_no_remedy_is_on_both_sides() -> None:
    family = {fault: name for name, faults in FAMILIES.items() for fault in faults}
    sides = {side: TELECOM.task_ids(side) for side in ("train", "eval")}
    assert {side: len(ids) for side, ids in sides.items()} == {"train": 143, "eval": 84}
    seen = {side: {family[fault] for task in ids for fault in faults_of(task)} for side, ids in sides.items()}
    assert seen["eval"] <= HELD_OUT and not seen["train"] & HELD_OUT
    assert {family[fault] for task in TELECOM.task_ids("") for fault in faults_of(task)} == set(FAMILIES)
    assert {TELECOM.task(task).category for task in sides["eval"]} == {TELECOM.task(t).category for t in sides["train"]}


def test_the_packages_own_split_is_there_and_not_called_held_out() -> None:
    sizes = {side: len(TELECOM.task_ids(f"package_{side}")) for side in ("train", "eval", "base")}
    assert sizes == {"train": 74, "eval": 40, "base": 114}
    assert {name: split.held_out for name, split in TELECOM.splits().items()} == {"default": True, "package": False}


@pytest.mark.parametrize("task", SAMPLE)
def test_the_verdict_is_the_packages(task: str) -> None:
    calls = TELECOM.reference(task)[0]
    assert oracle.evaluation(task, calls)["valid"] and oracle.package_verdict(task, calls)
    for less in oracle.with_one_left_out(calls):
        assert oracle.evaluation(task, less)["valid"] == oracle.package_verdict(task, less)


def test_labels_are_those_of_the_injected_faults() -> None:
    judged = [oracle.judged(fault) for task in SAMPLE for fault in oracle.faults(task, seed=0)]
    assert [each for each in judged if each.found != each.expected] == []
    assert {each.found for each in judged} >= {
        labels.INVALID_TOOL_CALL,
        labels.ARGUMENT_MISMATCH,
        labels.STATE_MISMATCH,
        labels.MISSING_TOOL_CALL,
    }


def test_a_run_that_is_not_ended_fails_although_the_state_is_right() -> None:
    calls = TELECOM.reference(ABROAD)[0]
    found = oracle.evaluation(ABROAD, calls, done=False)
    assert not found["valid"] and found["labels"] == [labels.MISSING_TOOL_CALL]
    assert found["diagnosis"][0].reason == "needed and not called: done"


def test_a_run_ends_after_ten_errors_as_in_the_package() -> None:
    episode = TELECOM.open(ABROAD, {}, Guard())
    wrong = TELECOM.render("hermes", ("get_customer_by_id", {"customer_id": "nobody"}))
    answers = [episode.step(wrong, False) for _ in range(10)]
    assert [answer["is_terminated"] for answer in answers] == [False] * 9 + [True]
    assert episode.evaluate({})["labels"] == [labels.RECOVERY_FAILURE]


def test_ids_that_the_package_draws_at_random_are_the_same_each_time() -> None:
    found = TELECOM.open(ABROAD, {}, Guard()).step(
        TELECOM.render("hermes", ("get_customer_by_id", {"customer_id": "C1002"})), False
    )
    line = re.search(r'"line_ids": \["(\w+)"', found["state"][0]["content"])[1]
    calls = [
        ("refuel_data", {"customer_id": "C1002", "line_id": line, "gb_amount": 1.0}),
        ("get_bills_for_customer", {"customer_id": "C1002"}),
    ]
    shown = []
    for _ in range(2):
        episode = TELECOM.open(ABROAD, {}, Guard())
        shown.append([episode.step(TELECOM.render("hermes", call), False)["state"] for call in calls])
    assert shown[0] == shown[1] and "B00000001" in str(shown[0])


def test_the_two_sides_tools_have_different_names() -> None:
    names = [document["name"] for document in TELECOM.documents(ABROAD)]
    assert len(names) == len(set(names)) == 44 and names[-1] == "done"


def test_the_compact_prompt_is_a_fraction_of_the_whole_one() -> None:
    sizes = {}
    for mode in TELECOM.formats:
        opening = TELECOM.open(ABROAD, {"tool_prompt_mode": mode}, Guard()).start()
        sizes[mode] = len(opening["state"][0]["content"])
    assert sizes["hermes"] > 30_000 and sizes["compact"] < 2_500
