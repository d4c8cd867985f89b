"""The leak guard, and its run over every task with failing actions from the real simulators."""

import random

import pytest

from env_service.environments.bfcl.catalog import all_tools, available_tools, load_tasks, revealed_tools
from env_service.environments.bfcl.leaks import episode_guard
from env_service.environments.bfcl.tools import Toolbox, parse_reference
from seal.diagnosis.evidence import ActionEvidence, CallEvidence
from seal.diagnosis.schema import violations
from seal.interface.cues import Omega, catalogue, observe_feedback, observe_reveal, observe_start, wording
from seal.interface.guard import InterfaceLeak, LeakGuard, leaves, public_documents, reference_secrets

FULL = Omega.of(list(catalogue()))
CALLS = [("place_order", {"symbol": "TSLA", "price": 31.0, "amount": 17})]


# --- what it catches -----------------------------------------------------------------


@pytest.mark.parametrize(
    "added",
    [
        "use TSLA",
        "try amount=17",
        "the price is 31",
        "the price is 31.0!",
        'call {"name": "place_order", "arguments": {"symbol": "TSLA", "price": 31.0, "amount": 17}}',
        "the order will be 98214",
        "the balance becomes 10007",
    ],
)
def test_values_calls_results_and_states_are_leaks(added):
    guard = LeakGuard(reference_secrets(CALLS, ['{"order_id": 98214}'], [{"account": {"balance": 10007.0}}]))
    assert guard.leaks("OBS", "OBS\n" + added)
    with pytest.raises(InterfaceLeak, match="only the reference knows"):
        guard.check("OBS", "OBS\n" + added)


def test_what_dialogue_or_documents_told_is_no_leak():
    guard = LeakGuard(reference_secrets(CALLS), ["Buy 17 shares of TSLA"])
    guard.check("OBS", "OBS\nTSLA, 17")
    assert [leak.secret for leak in guard.leaks("OBS", "OBS\n31.0")] == ["31", "31.0"]
    guard.check("it costs 31.0 now", "it costs 31.0 now\nso 31.0")
    guard.check("OBS", "OBS\n31.0")


def test_secrets_are_words_not_parts_of_words():
    guard = LeakGuard(reference_secrets([("f", {"x": "an", "n": 3})]))
    guard.check("", "many 30 3rd 13")
    assert guard.leaks("", "an 3") != ()


def test_changing_the_observation_itself_is_a_leak():
    guard = LeakGuard(())
    assert guard.leaks("OBS", "OB")[0].secret == ""
    with pytest.raises(InterfaceLeak, match="a changed observation"):
        guard.check("OBS", "SBO")


def test_a_cue_with_a_value_in_it_would_be_caught_on_the_tasks():
    caught = 0
    for task in list(load_tasks().values())[:200]:
        guard = LeakGuard(_secrets(task), (*public_documents(all_tools(task)), task.users[0] or ""))
        caught += bool(guard.leaks("S", "S\nFor example, put it into final_report.pdf or ask for TSLA."))
    assert caught > 0


def test_our_own_wording_is_no_leak_even_where_a_word_of_it_is_in_a_state():
    task = load_tasks()["multi_turn_base_19"]
    assert "work" in _secrets(task), "a folder of this task has a name that a cue uses as a word"
    for text in wording():
        episode_guard(task).check("OBS", "OBS\n" + text)


# --- the property over all tasks -----------------------------------------------------


def _secrets(task):
    toolbox, calls, results = Toolbox(task), [], []
    before = leaves(toolbox.instances)
    for text in (text for turn in task.reference for text in turn):
        calls.append(parse_reference(text))
        results.append(toolbox.call(*calls[-1]).text)
    return reference_secrets(calls, results, [before, toolbox.instances, task.initial_config])


def _wrong_value(node, rng):
    word = rng.choice(["zzz", "/a/b", "", "0"])
    return {
        "string": word,
        "integer": rng.choice([-7, 99, "x"]),
        "float": rng.choice([-7.5, 99.5, "x"]),
        "boolean": rng.choice([True, "yes"]),
        "array": rng.choice([[], [word], word]),
        "dict": rng.choice([{}, {"zzz": 1}]),
    }[node["type"]]


def _failures(task, toolbox, tools, rng, count):
    """Failing actions without knowledge of the reference, answered by the real simulators."""
    documents = {tool["name"]: tool for tool in tools}
    yield ActionEvidence(refusals=("Tool call 1 is not valid JSON.",))
    yield ActionEvidence(refusals=("Tool call 1 is not valid JSON.",), truncated=True)
    name = rng.choice(sorted(documents)) + "_all"
    yield ActionEvidence((CallEvidence(name, {}, False, (), "unavailable", f"name '{name}' is not defined"),))
    for name in rng.choices(sorted(documents), k=count):
        nodes = documents[name]["parameters"]["properties"]
        given = {key: _wrong_value(node, rng) for key, node in nodes.items() if rng.random() < 0.8}
        if rng.random() < 0.2:
            given["zzz"] = 1
        outcome = toolbox.call(name, given)
        broken = violations(given, documents[name])
        yield ActionEvidence((CallEvidence(name, given, True, broken, outcome.error, outcome.text),))


def test_no_augmentation_of_any_task_tells_what_only_its_reference_knows():
    rng, failures = random.Random(0), 0
    for task in load_tasks().values():
        tools = available_tools(task, 0)
        guard = LeakGuard(_secrets(task), (*public_documents(tools), task.users[0] or ""))
        for compact in (False, True):
            guard.check("SYSTEM", observe_start("SYSTEM", tools, FULL, task.category, compact))
        for failure in _failures(task, Toolbox(task), tools, rng, 8):
            failures += failure.failed
            guard.saw(" ".join(f"{call.name} {call.arguments}" for call in failure.calls))
            shown = "".join(call.result for call in failure.calls)
            for compact in (False, True):
                guard.check(shown, observe_feedback(shown, failure, tools, FULL, task.category, compact))
        for turn in sorted(task.withheld):
            revealed = revealed_tools(task, turn)
            guard.saw("".join(public_documents(revealed)))
            for compact in (False, True):
                guard.check("New tools", observe_reveal("New tools", revealed, FULL, task.category, compact))
    assert failures > 4000
