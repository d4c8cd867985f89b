"""The service's verdict over HTTP is the official checker's."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import bfcl_official as official
from bfcl_perturbations import perturbed, reference_calls, texts
from bfcl_play import play_all

from env_service.environments.base import Guard, get_environment
from env_service.environments.bfcl.catalog import Task, load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.tools import Toolbox
from env_service.environments.bfcl.verifier import verify


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


def insurance_bought_with_a_shared_card() -> tuple[Task, list[list[str]]]:
    """A long-context travel run that is perfect but for one insurance bought with a card of the extension."""
    for task in load_tasks().values():
        turns = reference_calls(task)
        booked = [turn for turn in turns if any(name == "book_flight" for name, _ in turn)]
        budget = task.initial_config.get("TravelAPI", {}).get("budget_limit")
        if task.category == "long_context" and booked and (budget is None or budget > 10):
            arguments = {
                "access_token": next(args for name, args in booked[0] if name == "book_flight")["access_token"],
                "insurance_type": "basic",
                "insurance_cost": 10.0,
                "booking_id": "booking_901",
                "card_id": "2345678923456789",
            }
            turns[-1].append(("purchase_insurance", arguments))
            return task, texts(turns, None)
    raise AssertionError("no such task")


def test_where_the_official_simulators_share_cards_the_verdict_is_official_and_the_evidence_clean() -> None:
    task, run = insurance_bought_with_a_shared_card()
    episode = get_environment("bfcl").open(task.id, {}, Guard())
    episode.start()
    for text in (text for turn in run for text in turn):
        episode.step(text, False)
    result = episode.evaluate({})
    assert official.verdict(task, run) is True
    assert result["valid"] is True
    assert result["labels"][-1] == "state_mismatch"


def test_tool_names_inside_strings_are_rewritten_as_the_package_does() -> None:
    task = load_tasks()["multi_turn_base_0"]
    box = Toolbox(task, label="me")
    box.call("touch", {"file_name": "note"})
    box.call("echo", {"content": "use ls() now, not list (it)", "file_name": "note"})
    name = f"me_{task.id}_GorillaFileSystem_instance"
    assert box.call("cat", {"file_name": "note"}).text == json.dumps(
        {"file_content": f"use {name}.ls() now, not list(it)"}
    )


def test_a_call_after_the_step_limit_counts_only_in_the_last_turn() -> None:
    task = load_tasks()["multi_turn_base_0"].prefix(1)
    environment = get_environment("bfcl")
    render = get_format("bfcl_qwen_fc").render_call
    perfect = [render(*call) for call in reference_calls(task)[0]]
    for turns, valid in ((1, True), (2, False)):
        episode = environment.open(task.id, {"turns": turns, "max_steps": 20}, Guard())
        episode.start()
        for text in perfect:
            episode.step(text, False)
        answers = [episode.step(render("pwd", {}), False) for _ in range(21 - len(perfect))]
        assert [answer["is_terminated"] for answer in answers] == [False] * (len(answers) - 1) + [True]
        assert answers[-1]["info"]["stop"] == "step_limit"
        assert episode.evaluate({"sparse": True}) == float(valid)


def test_a_message_cut_by_the_length_limit_ends_the_episode_without_reward() -> None:
    task = load_tasks()["multi_turn_base_0"]
    episode = get_environment("bfcl").open(task.id, {"turns": 1}, Guard())
    episode.start()
    render = get_format("bfcl_qwen_fc").render_call
    for call in reference_calls(task)[0]:
        episode.step(render(*call), False)
    answer = episode.step("I moved the fi", True)
    assert (answer["is_terminated"], answer["reward"], answer["info"]["stop"]) == (True, 0.0, "length")
    assert episode.evaluate({})["valid"] is False


def test_verify_judges_calls_like_a_played_episode() -> None:
    for task, _, _ in perturbed(seed=5, count=40):
        assert verify(task, [[turn] for turn in reference_calls(task)]).valid
    task = load_tasks()["multi_turn_base_0"]
    cut = verify(task, [[turn] for turn in reference_calls(task)[:-1]])
    assert not cut.valid and all(comparison.passed for comparison in cut.comparisons)


def test_a_variant_of_a_task_is_judged_by_its_own_configuration_and_reference() -> None:
    task = load_tasks()["multi_turn_base_0"].prefix(1)
    files = json.loads(json.dumps(task.initial_config["GorillaFileSystem"]).replace("final_report.pdf", "summary.pdf"))
    reference = (tuple(call.replace("final_report.pdf", "summary.pdf") for call in task.reference[0]),)
    variant = replace(task, initial_config={**task.initial_config, "GorillaFileSystem": files}, reference=reference)
    own, others = ([[list(turn)] for turn in reference_calls(each)] for each in (variant, task))
    assert verify(variant, own).valid and not verify(variant, others).valid
    assert verify(task, others).valid and not verify(task, own).valid
