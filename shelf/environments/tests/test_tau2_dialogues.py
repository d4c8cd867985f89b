"""tau2-bench with a user: splits, parts, and verdicts that are the package's own."""

import pytest

pytest.importorskip("shelf.environments.tau2", exc_type=ImportError)

from env_service.environments.base import Guard
from env_service.environments.registry import get_environment
from seal.method.interface.secrets import clauses, normal
from shelf.authoring.conformance import conformance
from shelf.environments.tests import tau2_dialogue_oracle as oracle

NAMES = tuple(oracle.CONSTRUCTORS)
TOLD = ("Instructions:", "Reason for call:", "Known info:", "###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")


def sample(name: str, most: int) -> list[str]:
    ids = list(get_environment(name).task_ids("package_base" if "telecom" in name else ""))
    return ids[:: max(1, len(ids) // most)]


def test_the_splits_are_the_packages() -> None:
    sizes = {name: [len(get_environment(name).task_ids(side)) for side in ("", "train", "eval")] for name in NAMES[:2]}
    assert sizes == {"tau2_airline": [50, 30, 20], "tau2_retail": [114, 74, 40]}
    telecom = get_environment("tau2_telecom_user")
    assert [len(telecom.task_ids(f"package_{side}")) for side in ("train", "eval", "base")] == [74, 40, 114]


@pytest.mark.parametrize("name", NAMES)
def test_the_user_is_prompted_as_the_package_does_and_the_policy_is_not(name: str) -> None:
    for task in sample(name, 3):
        opening = get_environment(name).open(task, {"user": True}, Guard()).start()
        told = opening["user"]["messages"][0]["content"]
        assert all(word in told for word in TOLD[:2] + TOLD[3:])
        assert bool(opening["user"]["tools"]) == ("telecom" in name)
        scenario = oracle.data(name, task)["user_scenario"]["instructions"]
        shown = normal(oracle.text_of(name, task))
        assert [c for c in clauses(scenario["reason_for_call"]) if c in shown] == []
        assert normal(scenario["reason_for_call"]) in normal(told)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_model_there_is_no_user(name: str) -> None:
    with pytest.raises(ValueError, match=r"seal\.user\.base_url"):
        get_environment(name).open(sample(name, 1)[0], {}, Guard())


def test_the_conformance_suite_plays_a_user_and_says_which_checks_it_skips() -> None:
    findings = {finding.check: finding.outcome for finding in conformance("tau2_telecom_user", tasks=3)}
    assert {check for check, outcome in findings.items() if outcome == "skipped"} == {"reference passes", "faults fail"}
    assert "fail" not in findings.values()


@pytest.mark.parametrize("name", NAMES)
def test_a_verdict_is_the_packages(name: str) -> None:
    for task in sample(name, 2):
        whole = oracle.recorded(name, task, oracle.reference(name, task))
        found = oracle.evaluation(name, task, whole)
        assert found["valid"] and oracle.package_verdict(name, task, whole), task
        assert found["labels"][-1] == "pass"
        for run in (*list(oracle.damaged(name, task))[:1], oracle.drawn(name, task)):
            simulation = oracle.recorded(name, task, run)
            found = oracle.evaluation(name, task, simulation)
            assert found["valid"] == oracle.package_verdict(name, task, simulation), (task, run)
            assert (found["labels"][-1] == "pass") == found["valid"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_verdict_is_the_packages(name: str) -> None:
    compared = failed = 0
    for number, task in enumerate(sample(name, 114)):
        whole = oracle.recorded(name, task, oracle.reference(name, task))
        assert oracle.evaluation(name, task, whole)["valid"] and oracle.package_verdict(name, task, whole), task
        damaged = list(oracle.damaged(name, task))[number % 6 :: 6]  # a package's verdict takes two seconds
        for run in (*damaged, oracle.drawn(name, task)):
            simulation = oracle.recorded(name, task, run)
            valid = oracle.evaluation(name, task, simulation)["valid"]
            assert valid == oracle.package_verdict(name, task, simulation), (task, run)
            compared, failed = compared + 1, failed + (not valid)
    assert compared >= 80 and failed >= 20, (compared, failed)
