"""The service's verdict over HTTP is the official checker's."""

from __future__ import annotations

from collections import Counter

from env_service.environments.bfcl.catalog import load_tasks
import bfcl_official as official
from bfcl_perturbations import perturbed, reference_calls, texts
from bfcl_play import play_all


def test_every_reference_passes_over_http_as_it_does_officially(service: int) -> None:
    runs = [(task, texts(reference_calls(task), None)) for task in load_tasks().values()]
    results = play_all(service, [(task.id, run) for task, run in runs])
    assert [result["valid"] for result in results] == [True] * 800
    assert [official.verdict(task, run) for task, run in runs] == [True] * 800
    expected = {"pass", "correct_abstention"}
    assert {label for result in results for label in result["labels"]} == expected
    assert all(result["completed"] and result["progress"] == 1.0 for result in results)


def test_three_thousand_faulty_runs_get_the_official_verdict(service: int) -> None:
    runs = list(perturbed(seed=0, count=3000))
    results = play_all(service, [(task.id, run) for task, _, run in runs])
    theirs = [official.verdict(task, run) for task, _, run in runs]
    disagreements = [
        (task.id, kinds, ours["valid"], run)
        for (task, kinds, run), ours, valid in zip(runs, results, theirs, strict=True)
        if ours["valid"] != valid
    ]
    assert not disagreements
    labels = Counter(label for result in results for label in result["labels"])
    assert 0.2 < sum(theirs) / len(theirs) < 0.8
    assert min(labels[name] for name in ("pass", "state_mismatch", "missing_tool_call", "spurious_tool_call")) > 100
