"""The service's verdict over HTTP is the official checker's."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from env_service.environments.base import Guard
from env_service.environments.bfcl.catalog import Task, load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.tools import Toolbox
from env_service.environments.registry import get_environment
from shelf.testbed.synthesis.verify import passes
from tests.env_service import bfcl_official as official
from tests.env_service.bfcl_perturbations import Cut, malformed, perturbed, reference_calls, texts
from tests.env_service.bfcl_play import play_all
from tests.support.samples import in_steps


@in_steps
def test_every_reference_passes_over_http_as_it_does_officially(service: int, step: int) -> None:
    runs = [(task, texts(reference_calls(task), None)) for task in [*load_tasks().values()][::step]]
    results = play_all(service, [(task.id, run) for task, run in runs])
    assert [result["valid"] for result in results] == [True] * (800 // step)
    assert [official.verdict(task, run) for task, run in runs] == [True] * (800 // step)
    expected = {"pass", "correct_abstention"}
    assert {label for result in results for label in result["labels"]} == expected
    assert all(result["completed"] and result["progress"] == 1.0 for result in results)


@in_steps
def test_three_thousand_faulty_runs_get_the_official_verdict(service: int, step: int) -> None:
    runs = list(perturbed(seed=0, count=3000 // step))
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
    assert (
        min(labels[name] for name in ("pass", "state_mismatch", "missing_tool_call", "spurious_tool_call"))
        > len(runs) / 30
    )


@pytest.mark.parametrize("mode", official.HANDLERS)
def test_calls_of_another_form_get_the_official_verdict_in_every_mode(service: int, mode: str) -> None:
    runs = list(malformed(seed=0, count=300, mode=mode))
    results = play_all(service, [(task.id, run) for task, run in runs], params={"tool_prompt_mode": mode})
    theirs = [official.verdict(task, run, mode) for task, run in runs]
    disagreements = [
        (task.id, ours["valid"], run)
        for (task, run), ours, valid in zip(runs, results, theirs, strict=True)
        if ours["valid"] != valid
    ]
    assert not disagreements
    assert 0.1 < sum(theirs) / len(theirs) < 0.9


def test_a_block_that_the_next_prompt_cannot_hold_fails_the_task_unless_it_comes_last() -> None:
    task = load_tasks()["multi_turn_base_0"]
    perfect = texts(reference_calls(task), None)
    for block in ('{"name": "ls", "parameters": {}}', '{"arguments": {}}', "[]", "3", "null"):
        bad = f"<tool_call>\n{block}\n</tool_call>"
        first = [[*perfect[0][:-1], bad], *perfect[1:]]
        last = [*perfect[:-1], [*perfect[-1][:-1], bad]]
        assert (official.verdict(task, first), official.verdict(task, last)) == (False, True)
        assert (judged(task.id, first)["valid"], judged(task.id, last)["valid"]) == (False, True)
        assert judged(task.id, first)["labels"] == ["invalid_tool_call"]
        omega = {"omega": {"version": 0, "cues": {}}}
        assert judged(task.id, first, **omega)["valid"], "training keeps the episode"


def judged(task_id: str, run: list[list[str]], **params: object) -> dict:
    """The evaluation of a run played in this process."""
    episode = get_environment("bfcl").open(task_id, params, Guard())
    episode.start()
    for text in (text for turn in run for text in turn):
        if episode.step(text, isinstance(text, Cut))["is_terminated"]:
            break
    return episode.evaluate({})


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


def test_a_cut_message_is_read_as_far_as_it_goes_in_evaluation_and_ends_an_episode_in_training() -> None:
    task = load_tasks()["multi_turn_base_0"]
    perfect = texts(reference_calls(task), None)
    cut = [[*turn[:-1], Cut("I moved the fi")] for turn in perfect]
    assert official.verdict(task, cut) and judged(task.id, cut)["valid"]
    for params in ({"omega": {"version": 0, "cues": {}}}, {"split": "train"}):
        trained = judged(task.id, cut, **params)
        assert (trained["valid"], trained["stop"], trained["labels"]) == (False, "length", ["budget_cut"])
    full = judged(task.id, [[*perfect[0][:-1], Cut("")]])  # no room for a single token: officially an error
    assert (full["valid"], full["stop"]) == (False, "length")


def test_a_run_that_stops_after_turns_that_pass_is_not_valid() -> None:
    for task, _, _ in perturbed(seed=5, count=40):
        assert passes(task, reference_calls(task)) and not passes(task, reference_calls(task)[:-1])


def test_a_variant_of_a_task_is_judged_by_its_own_configuration_and_reference() -> None:
    task = load_tasks()["multi_turn_base_0"].prefix(1)
    files = json.loads(json.dumps(task.initial_config["GorillaFileSystem"]).replace("final_report.pdf", "summary.pdf"))
    reference = (tuple(call.replace("final_report.pdf", "summary.pdf") for call in task.reference[0]),)
    variant = replace(task, initial_config={**task.initial_config, "GorillaFileSystem": files}, reference=reference)
    own, others = reference_calls(variant), reference_calls(task)
    assert passes(variant, own) and not passes(variant, others)
    assert passes(task, others) and not passes(task, own)
