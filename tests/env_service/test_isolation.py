"""Episodes in one process cannot see each other."""

import copy
import json
import random
from typing import Any

import pytest
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.long_context import (
    BOOKING_RECORD_EXTENSION,
    CREDIT_CARD_EXTENSION,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from env_service.channel import ActivityPage
from env_service.environments.bfcl.catalog import Task, load_tasks
from env_service.environments.bfcl.tools import Toolbox, parse_reference
from env_service.host import Host
from seal.method.interface.cues import Omega
from tests.env_service.bfcl_perturbations import perturbed, texts

DAY = {"day": "2026-11-25"}
"""Answers tell the day, and midnight may come between two of them."""


def new_host() -> Host:
    return Host(ActivityPage(ActivityPage.allocate()))


def shared_cards_run() -> tuple[str, list[str]]:
    """A long-context travel task that pays with a card of the module's own dictionaries."""
    task = next(t for t in load_tasks().values() if t.long_context and "TravelAPI" in t.involved_classes)
    token = task.initial_config["TravelAPI"].get("access_token", "x")
    card = next(iter(CREDIT_CARD_EXTENSION))
    insurance = {"access_token": token, "insurance_type": "basic", "insurance_cost": 1.0}
    calls = [
        ("purchase_insurance", {**insurance, "booking_id": "booking_901", "card_id": card}),
        ("get_all_credit_cards", {}),
        ("cancel_booking", {"access_token": token, "booking_id": "booking_902"}),
        ("get_booking_history", {"access_token": token}),
    ]
    return task.id, texts([calls], None)[0]


def precision_run() -> tuple[str, list[str]]:
    """A maths task that changes the process-wide precision."""
    task = next(t for t in load_tasks().values() if "MathAPI" in t.involved_classes)
    calls = [
        ("logarithm", {"value": 10, "base": 3, "precision": 60}),
        ("square_root", {"number": 2, "precision": 70}),
        ("logarithm", {"value": 10, "base": 3, "precision": -1}),
        ("square_root", {"number": 2, "precision": 0}),
        ("square_root", {"number": 3, "precision": 5}),
    ]
    return task.id, texts([calls], None)[0]


def weather_run() -> tuple[str, list[str]]:
    """A long-context vehicle task that writes into the module's weather dictionary."""
    task = next(t for t in load_tasks().values() if t.long_context and "VehicleControlAPI" in t.involved_classes)
    calls = [("get_outside_temperature_from_google", {}), ("displayCarStatus", {"option": "fuel"})]
    return task.id, texts([calls, calls], None)[0]


RUNS = [shared_cards_run(), shared_cards_run(), precision_run(), weather_run(), weather_run()]
RUNS += [(task.id, [text for turn in run for text in turn]) for task, _, run in perturbed(seed=3, count=35)]


def create(host: Host, name: str, task_id: str) -> bytes:
    arguments = {"env_type": "bfcl", "task_id": task_id, "params": DAY}
    return host.handle("create", name, arguments)[1]


def step(host: Host, name: str, text: str) -> bytes:
    return host.handle("step", name, {"content": text, "truncated": False, "role": "assistant"})[1]


def alone(run: tuple[str, list[str]]) -> list[bytes]:
    """All answers of one run on a host of its own."""
    host = new_host()
    answers = [create(host, "alone", run[0])]
    answers += [step(host, "alone", text) for text in run[1]]
    return [*answers, host.handle("evaluate", "alone", {})[1]]


ALONE = [alone(run) for run in RUNS]
PRISTINE = copy.deepcopy((CREDIT_CARD_EXTENSION, BOOKING_RECORD_EXTENSION))


@settings(max_examples=25)
@given(st.lists(st.integers(0, len(RUNS) - 1), min_size=2, max_size=12), st.integers(0, 2**32))
def test_interleaved_episodes_answer_as_each_does_alone(chosen: list[int], seed: int) -> None:
    host, rng = new_host(), random.Random(seed)
    answers: dict[str, list[bytes]] = {}
    pending: dict[str, list[str]] = {}
    for index, run in enumerate(chosen):
        name = f"episode-{index}-of-run-{run}"
        answers[name] = [create(host, name, RUNS[run][0]).replace(name.encode(), b"alone")]
        pending[name] = list(RUNS[run][1])
    while pending:
        name = rng.choice(list(pending))
        if not pending[name]:
            answers[name].append(host.handle("evaluate", name, {})[1])
            del pending[name]
            continue
        if rng.random() < 0.2:
            host.handle("evaluate", name, {})
        answers[name].append(step(host, name, pending[name].pop(0)))
    for name, got in answers.items():
        assert got == ALONE[int(name.rsplit("-", 1)[1])]
    assert (CREDIT_CARD_EXTENSION, BOOKING_RECORD_EXTENSION) == PRISTINE


@settings(max_examples=15)
@given(st.integers(0, len(RUNS) - 1), st.integers(0, 60))
def test_an_episode_rebuilt_from_its_messages_goes_on_as_if_nothing_had_happened(chosen: int, cut: int) -> None:
    task_id, messages = RUNS[chosen]
    first, second = new_host(), new_host()
    answers = [create(first, "alone", task_id)]
    taken = 0
    for text in messages[:cut]:
        header, body = first.handle("step", "alone", {"content": text, "truncated": False, "role": "assistant"})
        answers.append(body)
        if not header["ok"]:
            return
        taken += 1
    arguments = {
        "env_type": "bfcl",
        "task_id": task_id,
        "params": DAY,
        "steps": [(t, False, "assistant") for t in messages[:taken]],
    }
    assert second.handle("rebuild", "alone", arguments)[0]["ok"]
    answers += [step(second, "alone", text) for text in messages[taken:]]
    assert [*answers, second.handle("evaluate", "alone", {})[1]] == ALONE[chosen]


@pytest.mark.parametrize("category", ["base", "long_context"])
def test_toolboxes_of_one_task_share_nothing_that_can_change(category: str) -> None:
    def reached(value: Any, seen: dict[int, Any]) -> dict[int, Any]:
        if id(value) in seen or isinstance(value, str | int | float | type(None)):
            return seen
        if isinstance(value, dict | list) or hasattr(value, "__dict__"):
            seen[id(value)] = value
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
        for part in (*parts, *getattr(value, "__dict__", {}).values()):
            reached(part, seen)
        return seen

    for task in load_tasks().values():
        if task.category == category:
            first, second = Toolbox(task), Toolbox(task)
            assert not reached(first.instances, {}).keys() & reached(second.instances, {}).keys(), task.id


def test_a_training_episode_refuses_withheld_tools_until_they_are_revealed_and_evaluation_runs_them() -> None:
    task: Task = load_tasks()["multi_turn_miss_func_0"]
    (turn, (tool, *_)), *_ = task.withheld.items()
    name, arguments = next(parse_reference(c) for c in task.reference[turn] if c.startswith(tool))
    text = texts([[(name, arguments)]], None)[0][0]
    seen: dict[str, list[Any]] = {}
    for kind, params in (("evaluation", {}), ("training", {"omega": Omega.of().to_json()})):
        host = new_host()
        host.handle("create", kind, {"env_type": "bfcl", "task_id": task.id, "params": params})
        for message in [text, *["Done."] * turn, text]:
            host.handle("step", kind, {"content": message, "truncated": False, "role": "assistant"})
        evidence = json.loads(host.handle("evaluate", kind, {})[1])["evidence"]
        seen[kind] = [evidence[at]["actions"][0]["calls"][0] for at in (0, turn)]
    assert [call["available"] for call in seen["evaluation"]] == [False, True]
    assert [call["available"] for call in seen["training"]] == [False, True]
    assert seen["training"][0]["error"] == "unavailable"
    assert seen["evaluation"][0]["error"] != "unavailable"
    assert seen["training"][1]["error"] != "unavailable"
