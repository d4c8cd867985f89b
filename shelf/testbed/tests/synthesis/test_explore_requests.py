"""The requests of `seal tasks explore`: kept, counted, limited, and resumed after any failure."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path

import pytest

from env_service.environments.bfcl.task_file import read_task_file
from seal.system import exits
from seal.system.paths import HOME
from shelf.testbed.cli.tasks import app
from shelf.testbed.synthesis.llm.model import AnswerFile
from shelf.testbed.tests.synthesis.scripted_explorer import PLANS, SCENARIOS, command, good, number_of, render
from shelf.testbed.tests.synthesis.scripted_model import answering
from tests.support.commands import run

PATIENCE_S = 600
"""On a machine that stalls: nothing here takes longer than seconds by itself."""


@pytest.fixture
def out(tmp_path):
    return tmp_path / "found.jsonl"


def test_overload_and_silence_are_asked_again(out):
    def script(asked):
        if asked.before == 0:
            return 4.0 if asked.name.endswith("/0/0/propose") else 500
        return good(asked)

    with answering(script) as endpoint:
        assert run(app, command(endpoint, out, "--timeout", 1)) == 0
    assert len(read_task_file(out)) == len(SCENARIOS)
    assert set(endpoint.answered.values()) == {1}


def test_endless_failure_stops_with_a_sentence_and_the_command_resumes(out, capsys, monkeypatch):
    real = asyncio.sleep
    monkeypatch.setattr("asyncio.sleep", lambda delay, *more: real(min(delay, 0.02), *more))
    with answering(lambda asked: good(asked) if number_of(asked) == 0 else 503) as endpoint:
        assert run(app, command(endpoint, out, "--per-seed", 2)) == exits.INFRASTRUCTURE
        assert len(endpoint.asked) < 80
        first = dict(endpoint.answered)
    said = capsys.readouterr()
    assert "10 requests in a row failed, the last with endpoint_503" in said.err
    assert "1 of 6 tasks" in said.out
    with answering(good) as endpoint:
        assert run(app, command(endpoint, out, "--per-seed", 2)) == 0
    assert len(read_task_file(out)) == 6
    assert first and not first.keys() & endpoint.answered.keys()


def test_extra_fields_are_in_every_request(out):
    with answering(good) as endpoint:
        assert run(app, command(endpoint, out, "--extra", '{"enable_thinking": false}')) == 0
        count = len(endpoint.asked)
        assert [asked.body["enable_thinking"] for asked in endpoint.asked] == [False] * count
        assert run(app, command(endpoint, out)) == 0
        assert len(endpoint.asked) == 2 * count  # answers to other requests do not count


def test_a_wrong_key_is_refused_at_once(out, capsys):
    with answering(lambda asked: 401) as endpoint:
        assert run(app, command(endpoint, out)) == exits.USAGE
    said = capsys.readouterr().err
    assert "refused the request with 401" in said and "OPENAI_API_KEY" in said and said.count("\n") == 1


def test_the_cost_limit_holds_and_more_of_it_continues(out, capsys):
    with answering(good) as endpoint:
        assert run(app, command(endpoint, out, "--per-seed", 2, "--max-tokens-total", 50_000)) == 1
        said = capsys.readouterr()
        assert "could exceed the limit of 50,000 tokens" in said.err
        spent = [json.loads(line) for line in Path(f"{out}.answers.jsonl").read_text().splitlines()]
        assert 0 < sum(line["prompt_tokens"] + line["tokens"] for line in spent) <= 50_000
        assert 0 < len(read_task_file(out)) < 6
        assert run(app, command(endpoint, out, "--per-seed", 2, "--max-tokens-total", 2_000_000)) == 0
    assert len(read_task_file(out)) == 6
    assert set(endpoint.answered.values()) == {1}


def test_a_stopped_run_keeps_every_task_whose_answers_are_kept(out, capsys):
    """A draw that failed technically has no answer: a run that may not ask for it finds the draw after it."""
    failed = ("explore/0/0/propose", "explore/3/0/propose")
    with answering(lambda asked: 400 if asked.name in failed else good(asked)) as endpoint:
        assert run(app, command(endpoint, out, "--per-seed", 2)) == 0
        made, asked = out.read_bytes(), len(endpoint.asked)
        assert run(app, command(endpoint, out, "--per-seed", 2, "--max-tokens-total", 1)) == 1
        assert len(endpoint.asked) == asked
    said = capsys.readouterr()
    assert "could exceed the limit of 1 token" in said.err and "given up" not in said.err
    assert out.read_bytes() == made and len(read_task_file(out)) == 6


def test_which_of_two_equal_tasks_is_kept_does_not_depend_on_the_endpoints_speed(out):
    """A scenario's first task waits for the others, of which one is the same: a finished command asks nothing again."""
    others = threading.Event()

    def script(asked):
        _, number, draw, step = asked.name.split("/")
        calls = PLANS[1] if draw == "0" or step.isdigit() else PLANS[1][:2]
        if step == "0":
            return render(*calls)
        if step == "propose":
            assert number != "0" or others.wait(PATIENCE_S)
            whole = "Please start a file 'walnut.csv' with 'seven green lanterns' in it, and tell me where I am."
            part = "I have to remember 'seven green lanterns'. Write that down for me, as 'walnut.csv', in a new file!"
            numbers = list(range(1, len(calls) + 1))
            return json.dumps({"turns": [{"message": (whole if len(calls) > 2 else part) + number, "calls": numbers}]})
        if step == "read" and number in ("3", "5"):
            others.set()
        listed = [{"name": name, "arguments": arguments} for name, arguments in calls]
        return json.dumps({"turns": [listed]}) if step == "read" else "Done."

    with answering(script) as endpoint:
        assert run(app, command(endpoint, out, "--per-seed", 2)) == 0
        made, asked = out.read_bytes(), len(endpoint.asked)
        assert run(app, command(endpoint, out, "--per-seed", 2)) == 0
        assert (out.read_bytes(), len(endpoint.asked)) == (made, asked)


def test_a_refusal_midway_keeps_what_was_made(out, capsys):
    refusing = False

    def script(asked):
        nonlocal refusing
        refusing = refusing or number_of(asked) == 4
        return 402 if refusing else good(asked)

    with answering(script) as endpoint:
        assert run(app, command(endpoint, out, "--per-seed", 2, "--concurrency", 1)) == exits.INFRASTRUCTURE
    assert "refused the request with 402" in capsys.readouterr().err
    assert [task.provenance.number for task in read_task_file(out)] == [0, 1, 3]


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_midway_no_kept_answer_is_paid_twice(out, sent):
    answers, turns, killed = Path(f"{out}.answers.jsonl"), count(), threading.Event()

    def script(asked):
        if killed.is_set() or next(turns) < 3:
            return good(asked)
        killed.wait(PATIENCE_S)  # the command stays midway, however long this machine takes
        return 0.0

    with answering(script) as endpoint:
        arguments = [str(each) for each in command(endpoint, out, "--per-seed", 2)]
        running = subprocess.Popen(
            [sys.executable, "-m", "seal.cli", "tasks", *arguments], cwd=HOME, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not (answers.exists() and answers.read_bytes().count(b"\n") >= 3):
            time.sleep(0.02)
        running.send_signal(sent)
        _, said = running.communicate(timeout=PATIENCE_S)
        kept = answers.read_bytes().count(b"\n")
        assert kept == 3 and not out.exists()
        if sent == signal.SIGINT:
            assert running.returncode == exits.INTERRUPTED and "the same command resumes" in said
        else:
            with answers.open("a") as stream:
                stream.write('{"request": "half')
        killed.set()
        before = endpoint.answered.copy()
        assert run(app, command(endpoint, out, "--per-seed", 2)) == 0
    assert len(read_task_file(out)) == 6
    again = sum(count - before[name] for name, count in endpoint.answered.items())
    assert again == len(endpoint.answered) - kept


def test_two_processes_do_not_write_one_file(out, capsys):
    held = AnswerFile(out)
    with answering(good) as endpoint:
        assert run(app, command(endpoint, out)) == exits.USAGE
    held.close()
    assert "Another process writes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--base-url", "http://127.0.0.1:9/v1"], "Name the model"),
        (["--model", "m"], "No endpoint is named"),
        (["--model", "m", "--base-url", "127.0.0.1:9"], "is not an address"),
        (["--model", "m", "--base-url", "http://127.0.0.1:9/v1"], "No OpenAI-compatible endpoint"),
        (["--model", "m", "--base-url", "http://h/v1", "--concurrency", "0"], "must be positive"),
        (["--model", "m", "--base-url", "http://h/v1", "--extra", "[1]"], "JSON object"),
        (["--model", "m", "--base-url", "http://h/v1", "--extra", "{no"], "JSON object"),
    ],
)
def test_wrong_options_are_one_sentence(out, capsys, monkeypatch, options, sentence):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "DASHSCOPE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert run(app, ["explore", *options, "--out", str(out)]) == exits.USAGE
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
    assert not out.exists()
