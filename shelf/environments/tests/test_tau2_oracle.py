"""Every verdict of tau2-bench telecom is the package's own, and labels are those of the injected faults."""

from itertools import chain

import pytest

pytest.importorskip("shelf.environments.tau2", exc_type=ImportError)

from env_service.environments.registry import get_environment
from shelf.authoring.tests.confusion import Confusion
from shelf.environments.tests import tau2_oracle as oracle

pytestmark = pytest.mark.slow

TELECOM = get_environment("tau2_telecom")
TASKS = TELECOM.task_ids("")
FAULTY = TASKS[:: len(TASKS) // 70]


def test_every_reference_passes_as_in_the_package() -> None:
    verdicts = [
        (oracle.evaluation(task, calls)["valid"], oracle.package_verdict(task, calls))
        for task in TASKS
        for calls in TELECOM.reference(task)
    ]
    assert verdicts == [(True, True)] * 2285


def test_each_reference_with_one_action_left_out_gets_the_packages_verdict() -> None:
    compared = 0
    for task in TASKS:
        for calls in oracle.with_one_left_out(TELECOM.reference(task)[0]):
            assert oracle.evaluation(task, calls)["valid"] == oracle.package_verdict(task, calls), (task, calls)
            compared += 1
    assert compared > 10_000


def test_five_hundred_faulty_runs_get_the_packages_verdict_and_their_label() -> None:
    faults = list(chain.from_iterable(oracle.faults(task, seed=0) for task in FAULTY))
    assert len(faults) >= 500
    for fault in faults:
        ours = oracle.evaluation(fault.task_id, fault.calls, fault.done)["valid"]
        assert ours == (fault.done and oracle.package_verdict(fault.task_id, fault.calls)), fault
    confusion = Confusion.of(oracle.judged(fault) for fault in faults)
    for label in confusion.labels():
        assert confusion.precision(label) >= 0.95 and confusion.recall(label) >= 0.95, (label, confusion.counts)
