"""`seal tasks explore` against an endpoint that behaves, fails, rambles and cheats."""

import json
import re
from dataclasses import replace

import pytest

from env_service.environments.bfcl.catalog import available_tools, load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.splits import EVAL_SCENARIOS, side_of
from env_service.environments.bfcl.task_file import read_task_file
from env_service.environments.bfcl.tools import parse_reference
from seal.system import exits
from shelf.testbed.cli.tasks import app
from shelf.testbed.synthesis.llm.explorer import PROMPT_MODE, Playground, does_nothing, seed_tasks
from shelf.testbed.synthesis.verify import problem_of
from shelf.testbed.tests.synthesis.scripted_explorer import (
    PLANS,
    SCENARIOS,
    asking_for,
    command,
    good,
    number_of,
    render,
    seeds,
)
from shelf.testbed.tests.synthesis.scripted_model import MODEL, answering
from tests.support.commands import run


def proposing(change):
    """The good model with a changed proposal."""
    return lambda asked: (
        json.dumps({"turns": change(json.loads(good(asked))["turns"])})
        if asked.name.endswith("/propose")
        else good(asked)
    )


def saying(message):
    """The good model whose user says this in every turn; {} stands for what the user said."""
    return proposing(lambda turns: [{**turn, "message": message.replace("{}", turn["message"])} for turn in turns])


def answering_with(step, text):
    """The good model that answers one step with a text, or its calls."""

    def script(asked):
        last = asked.name.rsplit("/", 1)[1]
        return text if last == step or (step == "calls" and last.isdigit()) else good(asked)

    return script


def reasons(said: str) -> dict[str, int]:
    listed = said.partition("rejected: ")[2].partition(")")[0]
    return {name: int(count) for name, count in re.findall(r"(\w+) (\d+)", listed)}


def test_a_good_model_gives_sound_tasks_of_its_training_scenarios(tmp_path, capsys):
    out = tmp_path / "found.jsonl"
    with answering(good) as endpoint:
        assert run(app, command(endpoint, out, "--per-seed", 2)) == 0
        asked = len(endpoint.asked)
        assert run(app, command(endpoint, out, "--per-seed", 2)) == 0
        assert len(endpoint.asked) == asked
    tasks = read_task_file(out)
    assert [task.provenance.source for task in tasks] == [f"multi_turn_base_{n}" for n in SCENARIOS] * 2
    for task in tasks:
        assert (task.provenance.writer, task.provenance.model, task.level) == ("explore", MODEL, "train")
        assert task.config == load_tasks()[task.provenance.source].initial_config
        assert problem_of(task.task) is None and side_of(task.id) == "train"
        assert "cat" not in {parse_reference(call)[0] for calls in task.reference for call in calls}
    assert "6 of 6 tasks, 6 draws" in capsys.readouterr().out
    assert run(app, ["check", str(out)]) == 0


def test_the_explorer_sees_the_benchmarks_prompt_and_no_message_of_the_seed_task(tmp_path):
    with answering(good) as endpoint:
        assert run(app, command(endpoint, tmp_path / "found.jsonl")) == 0
    users = [user for task in seeds() for user in task.users]
    assert not any(user in asked.text for asked in endpoint.asked for user in users)
    first = next(asked for asked in endpoint.asked if asked.name == "explore/0/0/0")
    shown = get_format(PROMPT_MODE).system(available_tools(seeds()[0], 0))
    assert first.messages[0]["content"] == shown


def test_the_calls_of_an_exploration_are_bounded(tmp_path):
    out = tmp_path / "found.jsonl"

    def script(asked):
        step = asked.name.rsplit("/", 1)[1]
        return render(*[("pwd", {})] * 5) if step.isdigit() else good(asked)

    with answering(script) as endpoint:
        assert run(app, command(endpoint, out, "--max-calls", 8, "--draws", 1)) == 1
    steps = [asked for asked in endpoint.asked if asked.name.startswith("explore/0/0/")]
    results = [asked.text.count("<tool_response>") for asked in steps if asked.name[-1].isdigit()]
    assert results == [0, 5]


TRAINING_MESSAGE = max(load_tasks()["multi_turn_base_0"].users, key=len)
EVALUATION_MESSAGE = max(load_tasks()[f"multi_turn_base_{EVAL_SCENARIOS[0]}"].users, key=len)
CHEATS = {
    "refuses": (answering_with("propose", "I would rather not."), "unreadable"),
    "never acts": (lambda asked: "Nothing to do here.", "too_few_calls"),
    "no readable call": (answering_with("calls", "<tool_call>\nls\n</tool_call>"), "too_few_calls"),
    "misreads": (answering_with("read", json.dumps({"turns": [[], []]})), "other_calls"),
    "pastes a call": (saying("{} touch(file_name='x.txt')"), "names_tools"),
    "names a tool": (saying("{} Use mkdir."), "names_tools"),
    "names an argument": (saying("{} The file_name is up to you."), "names_tools"),
    "copies the training side": (saying(TRAINING_MESSAGE), "copies_benchmark"),
    "copies the evaluation side": (saying(f"Hello! {EVALUATION_MESSAGE}"), "copies_benchmark"),
    "one call": (proposing(lambda turns: turns[:1]), "too_few_calls"),
    "backwards": (proposing(lambda turns: turns[::-1]), "unreadable"),
    "out of range": (proposing(lambda turns: [{**turns[0], "calls": [99]}]), "unreadable"),
    "a turn twice": (proposing(lambda turns: [turns[0], turns[0]]), "unreadable"),
}


@pytest.mark.parametrize(("script", "reason"), CHEATS.values(), ids=CHEATS)
def test_a_proposal_that_is_no_task_is_rejected_with_its_reason(tmp_path, capsys, script, reason):
    out = tmp_path / "found.jsonl"
    with answering(script) as endpoint:
        assert run(app, command(endpoint, out, "--draws", 1)) == 1
    said = capsys.readouterr()
    assert reasons(said.out) == {reason: 3}
    assert "3 tasks were given up" in said.err and not out.exists()


def acting(*calls, messages=None):
    """A model that makes these calls, and asks for all of them in one turn."""

    def script(asked):
        step = asked.name.rsplit("/", 1)[1]
        listed = [{"name": name, "arguments": arguments} for name, arguments in calls]
        if step == "0":
            return render(*calls)
        if step == "propose":
            wishes = " and ".join(asking_for(*call) for call in calls)
            said = messages or f"Please {wishes}, for my {number_of(asked)} friends."
            return json.dumps({"turns": [{"message": said, "calls": list(range(1, len(calls) + 1))}]})
        return json.dumps({"turns": [listed]}) if step == "read" else "Done."

    return script


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([("echo", {"content": "hello there"}), ("echo", {"content": "goodbye then"})], "does_nothing"),
        ([("pwd", {}), ("pwd", {})], "repeats_a_call"),
        ([("touch", {"file_name": "one.txt"}), ("rm", {"file_name": "one.txt"})], "does_nothing"),
    ],
    ids=["echoes", "twice the same", "undone"],
)
def test_a_reference_that_does_nothing_or_too_much_is_rejected(tmp_path, capsys, calls, reason):
    with answering(acting(*calls)) as endpoint:
        assert run(app, command(endpoint, tmp_path / "found.jsonl", "--draws", 1)) == 1
    assert reasons(capsys.readouterr().out) == {reason: 3}


def test_a_reference_of_which_the_verifier_does_not_need_every_call_is_rejected(tmp_path, capsys):
    calls = [("add", {"a": 1, "b": 2}), ("add", {"a": 2, "b": 1}), ("multiply", {"a": 5, "b": 7})]
    listed = [{"name": name, "arguments": arguments} for name, arguments in calls]

    def script(asked):
        if asked.name.endswith("/propose"):
            first, then = "What do 1 and 2 make?", "And 2 and 1? Also 5 times 7, please."
            return json.dumps({"turns": [{"message": first, "calls": [1]}, {"message": then, "calls": [2, 3]}]})
        if asked.name.endswith("/read"):
            return json.dumps({"turns": [listed[:1], listed[1:]]})
        return acting(*calls)(asked)

    with answering(script) as endpoint:
        where = ["--model", MODEL, "--base-url", endpoint.url, "--scenarios", 15, "--out", tmp_path / "found.jsonl"]
        assert run(app, ["explore", *where, "--draws", 1]) == 1
    assert reasons(capsys.readouterr().out) == {"unsound": 1}


def test_a_number_beyond_every_float_is_no_end_of_the_run(tmp_path):
    calls = [("power", {"base": 9999, "exponent": 100}), ("absolute_value", {"number": -7})]

    def script(asked):
        if asked.name.endswith("/propose"):
            said = "What is 9999 to the power of 100? And how far is -7 from zero?"
            return json.dumps({"turns": [{"message": said, "calls": [1, 2]}]})
        return acting(*calls)(asked)

    with answering(script) as endpoint:
        where = ["--model", MODEL, "--base-url", endpoint.url, "--scenarios", 15, "--out", tmp_path / "found.jsonl"]
        assert run(app, ["explore", *where, "--draws", 1]) == 0


def test_calls_that_need_one_that_was_left_out_are_rejected(tmp_path, capsys):
    calls = [("mkdir", {"dir_name": "attic"}), ("cd", {"folder": "attic"}), ("pwd", {})]

    def script(asked):
        if asked.name.endswith("/propose"):
            return json.dumps({"turns": [{"message": "Please go to 'attic' and tell me where I am.", "calls": [2, 3]}]})
        return acting(*calls)(asked)

    with answering(script) as endpoint:
        assert run(app, command(endpoint, tmp_path / "found.jsonl", "--draws", 1)) == 1
    assert reasons(capsys.readouterr().out) == {"needs_other_calls": 3}


def test_tasks_that_repeat_calls_or_words_of_others_are_rejected(tmp_path, capsys):
    same = acting(*PLANS[1])
    with answering(same) as endpoint:
        assert run(app, command(endpoint, tmp_path / "found.jsonl", "--per-seed", 2, "--draws", 1)) == 1
    assert reasons(capsys.readouterr().out) == {"same_calls": 3}

    said = "Please start a file 'walnut.csv' with 'seven green lanterns' in it, and tell me where I am{}."

    def script(asked):
        calls = PLANS[1] if number_of(asked) < len(SCENARIOS) else (PLANS[1][0], PLANS[1][2], PLANS[1][1])
        return acting(*calls, messages=said.format(f", my {number_of(asked) % len(SCENARIOS)} friends are waiting"))(
            asked
        )

    with answering(script) as endpoint:
        assert run(app, command(endpoint, tmp_path / "other.jsonl", "--per-seed", 2, "--draws", 1)) == 1
    assert reasons(capsys.readouterr().out) == {"same_messages": 3}


@pytest.mark.parametrize("scenario", EVAL_SCENARIOS[:1])
def test_an_evaluation_scenario_is_refused_before_anything_is_asked(tmp_path, capsys, scenario):
    with answering(good) as endpoint:
        more = ["--scenarios", scenario, "--model", MODEL, "--base-url", endpoint.url, "--out", tmp_path / "x.jsonl"]
        assert run(app, ["explore", *more]) == exits.USAGE
        assert not endpoint.asked
    assert f"Scenario {scenario} does not belong to the training side" in capsys.readouterr().err


def test_no_seed_task_is_of_the_evaluation_side_or_starts_in_a_state_of_it():
    states = [
        state for task in load_tasks().values() if side_of(task.id) == "eval" for state in task.initial_config.values()
    ]
    for task in seed_tasks(None):
        assert side_of(task.id) == "train"
        assert not any(state in states for state in task.initial_config.values() if state)
    assert len(seed_tasks(None)) > 80
    with pytest.raises(ValueError, match="Scenario 200 does not belong to the training side"):
        seed_tasks([200])
    shared = next(n for n in range(200) if side_of(f"multi_turn_base_{n}") == "train" and _is_left_out(n))
    with pytest.raises(ValueError, match="starts in the initial"):
        seed_tasks([shared])


def _is_left_out(scenario):
    return f"multi_turn_base_{scenario}" not in {task.id for task in seed_tasks(None)}


def test_calls_that_would_keep_a_simulator_busy_are_refused():
    task = next(task for task in load_tasks().values() if "MathAPI" in task.involved_classes)
    playground = Playground(task)
    assert "must not exceed 100" in playground.make("power", {"base": 9, "exponent": 9**9}).result
    assert not playground.make("logarithm", {"value": 5, "base": 2, "precision": 10**9}).call.succeeded
    assert playground.make("power", {"base": 2, "exponent": 10}).call.succeeded


def test_a_result_that_is_asked_for_is_not_nothing():
    task = seeds()[0]
    playground = Playground(task)
    assert not does_nothing(_with(task, "pwd()"), [playground.make("pwd", {})])
    assert does_nothing(_with(task, "echo(content='a')"), [playground.make("echo", {"content": "a"})])


def _with(task, call):
    return replace(task, id="synth_train_base_000000000000", users=("x",), reference=((call,),))
