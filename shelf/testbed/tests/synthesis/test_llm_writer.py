"""The writer `llm` against an endpoint that behaves, fails, rambles and cheats."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from env_service.environments.bfcl.catalog import available_tools, load_tasks
from env_service.environments.bfcl.splits import side_of
from env_service.environments.bfcl.task_file import Provenance, read_task_file
from seal.system import exits
from seal.system.paths import HOME
from shelf.testbed.cli.tasks import app
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.llm.answers import AnswerFile
from shelf.testbed.synthesis.llm.intent import path_intents
from shelf.testbed.synthesis.llm.prompts import FROM_RESULT
from shelf.testbed.synthesis.llm.writer import LlmWriter
from shelf.testbed.synthesis.make import made_task
from shelf.testbed.synthesis.verify import problem_of
from shelf.testbed.tests.synthesis.scripted_model import MODEL, answering
from tests.support.commands import run

REPOSITORY = HOME
SEED = 5


MOST_TASKS = 16


@cache
def path_of(level, number, which):
    return LlmWriter(None, SEED, level).path_of(number, 3 * which)


@cache
def intents_of(level, number, which):
    path = path_of(level, number, which)
    unsaid = tuple(turn and "" for turn in path.turns)
    return path_intents(path, made_task(path, unsaid, level, Provenance(writer="test", seed=0, number=0)).task)


def place(name):
    """The number of the task, and which of its paths, of a request's id."""
    _, number, draw, _ = name.split("/")
    return int(number), int(draw) // 3


@dataclass
class Author:
    """Knows the path of each request, so that it can answer as a good model would, or badly on purpose."""

    level: str = "train"

    def __post_init__(self):
        # Python 3.11 cannot parse calls in two threads at once: nothing is left to do for those of the endpoint.
        for number in range(MOST_TASKS):
            for which in range(3):
                intents_of(self.level, number, which)

    def path(self, name):
        return path_of(self.level, *place(name))

    def intents(self, name):
        return intents_of(self.level, *place(name))

    def messages(self, name):
        """The grammar's messages, which say everything that must be said."""
        intents = self.intents(name)
        said = Grammar().write(self.path(name), "train", random.Random(name))
        texts = []
        for text, intent in zip(said, intents, strict=True):
            if intent.asking == "value":
                text = f"Sorry, it is {json.dumps(intent.say[0])}."
            if text is not None:
                texts.append(text)
        return texts

    def calls(self, name):
        """What a careful reader lists for each turn."""
        return [
            [
                {
                    "name": each.call.name,
                    "arguments": {
                        key: FROM_RESULT if key in each.free else value for key, value in each.call.arguments.items()
                    },
                }
                for each in intent.expected
            ]
            for intent in self.intents(name)
        ]

    def answer(self, asked):
        """A good answer."""
        if asked.name.endswith("/read"):
            return json.dumps({"turns": self.calls(asked.name)})
        return json.dumps({"messages": self.messages(asked.name)})


def command(endpoint, out, *more, count=6):
    where = ["--writer", "llm", "--model", MODEL, "--base-url", endpoint.url]
    return ["synthesise", *where, "--seed", SEED, "--count", count, "--concurrency", 4, "--out", out, *more]


def test_a_good_model_gives_sound_tasks_that_name_it(tmp_path, capsys):
    out = tmp_path / "tasks.jsonl"
    with answering(Author("values").answer) as endpoint:
        assert run(app, command(endpoint, out, "--level", "values", count=12)) == 0
    tasks = read_task_file(out)
    assert [task.provenance.number for task in tasks] == list(range(12))
    assert {(task.provenance.writer, task.provenance.model, task.level) for task in tasks} == {("llm", MODEL, "values")}
    assert all(problem_of(task.task) is None for task in tasks)
    said = capsys.readouterr().out
    assert "12 of 12 tasks, 12 draws" in said and "24 requests" in said and "per task" in said
    assert run(app, ["check", str(out)]) == 0


def test_the_same_command_again_asks_nothing_and_writes_the_same(tmp_path):
    out = tmp_path / "tasks.jsonl"
    with answering(Author().answer) as endpoint:
        assert run(app, command(endpoint, out)) == 0
        written, asked = out.read_bytes(), len(endpoint.asked)
        assert run(app, command(endpoint, out)) == 0
        assert (out.read_bytes(), len(endpoint.asked)) == (written, asked)
        assert run(app, command(endpoint, out, count=8)) == 0
        assert len(endpoint.asked) == asked + 4
    assert out.read_bytes().startswith(written)


def test_the_reader_sees_messages_and_shown_tools_and_nothing_of_the_path(tmp_path):
    out, author = tmp_path / "tasks.jsonl", Author()
    with answering(author.answer) as endpoint:
        assert run(app, command(endpoint, out, count=10)) == 0
    tasks = {f"train/{task.provenance.number}/0/read": task for task in read_task_file(out)}
    for asked in endpoint.asked:
        if asked.name in tasks:
            task = tasks[asked.name]
            listed, _, said = asked.messages[1]["content"].partition("Turn 1")
            shown = [json.loads(line)["name"] for line in listed.splitlines() if line.startswith("{")]
            assert shown == [tool["name"] for tool in available_tools(task.task, 0)]
            assert not any(call in said for calls in task.reference for call in calls)
            for intent in author.intents(asked.name):
                assert not any(isinstance(value, float) and str(value) in said for value in intent.secret)


def test_overload_and_silence_are_asked_again(tmp_path):
    author = Author()

    def script(asked):
        if asked.before == 0:
            return 4.0 if asked.name.endswith("/0/0/write") else 500
        return author.answer(asked)

    with answering(script) as endpoint:
        out = tmp_path / "tasks.jsonl"
        assert run(app, command(endpoint, out, "--timeout", 1)) == 0
    assert len(read_task_file(out)) == 6
    assert set(endpoint.answered.values()) == {1}


def test_endless_failure_stops_with_a_sentence_and_the_command_resumes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("asyncio.sleep", quick_sleep())
    out, author = tmp_path / "tasks.jsonl", Author()
    with answering(lambda asked: author.answer(asked) if "/0/0/" in asked.name else 503) as endpoint:
        assert run(app, command(endpoint, out)) == exits.INFRASTRUCTURE
        assert len(endpoint.asked) < 80
        first = dict(endpoint.answered)
    said = capsys.readouterr()
    assert "10 requests in a row failed, the last with endpoint_503" in said.err
    assert said.err.count("\n") == 1
    assert "1 of 6 tasks" in said.out
    with answering(author.answer) as endpoint:
        assert run(app, command(endpoint, out)) == 0
    assert len(read_task_file(out)) == 6
    assert first and not first.keys() & endpoint.answered.keys()


def quick_sleep():
    """asyncio.sleep without its pauses of seconds."""
    import asyncio

    real = asyncio.sleep
    return lambda delay, *more: real(min(delay, 0.02), *more)


def test_extra_fields_are_in_every_request(tmp_path):
    with answering(Author().answer) as endpoint:
        out = tmp_path / "tasks.jsonl"
        assert run(app, command(endpoint, out, "--extra", '{"enable_thinking": false}', count=2)) == 0
        assert [asked.body["enable_thinking"] for asked in endpoint.asked] == [False] * 4
        assert run(app, command(endpoint, out, count=2)) == 0
        assert len(endpoint.asked) == 8  # answers to other requests do not count


def test_a_wrong_key_is_refused_at_once(tmp_path, capsys):
    with answering(lambda asked: 401) as endpoint:
        assert run(app, command(endpoint, tmp_path / "tasks.jsonl")) == exits.USAGE
    said = capsys.readouterr().err
    assert "refused the request with 401" in said and "OPENAI_API_KEY" in said and said.count("\n") == 1


def test_what_is_no_answer_rejects_the_draw_and_the_next_one_counts(tmp_path, capsys):
    author = Author()
    useless = {"train/0/0/write": "I cannot help.", "train/1/0/write": json.dumps({"messages": ["a"] * 8})}

    def script(asked):
        return useless.get(asked.name) or author.answer(asked)

    with answering(script) as endpoint:
        assert run(app, command(endpoint, tmp_path / "tasks.jsonl", count=3)) == 0
    assert "3 of 3 tasks, 5 draws (rejected: unreadable 2)" in capsys.readouterr().out


def naming_tools(text, intent):
    return f"{text} Use {intent.about[0].name}."


def pasting_calls(text, intent):
    return f"Please run {', '.join(map(str, intent.about))}."


def copying(text, intent):
    held_out = (task for task in load_tasks().values() if side_of(task.id) == "eval")
    return f"{text} {next(user for task in held_out for user in task.users if len(user) > 80)}"


CHEATS = {
    pasting_calls: {"names_tools"},
    naming_tools: {"names_tools", "other_calls"},
    lambda text, intent: f'{text} {{"x": 1}}': {"names_tools"},
    lambda text, intent: "Please do it.": {"leaves_out"},
    copying: {"copies_benchmark"},
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_rejected_with_its_reason(tmp_path, capsys, cheat):
    out, author = tmp_path / "tasks.jsonl", Author()

    def script(asked):
        if asked.name.endswith("/read"):  # a reader that does not help: it finds nothing
            return json.dumps({"turns": [[] for _ in author.intents(asked.name)]})
        spoken = [intent for intent in author.intents(asked.name) if intent.asking]
        return json.dumps({"messages": list(map(cheat, author.messages(asked.name), spoken))})

    with answering(script) as endpoint:
        assert run(app, command(endpoint, out, "--draws", 1, count=6)) == 1
    said = capsys.readouterr()
    assert not out.exists()
    assert "6 tasks were given up" in said.err
    reasons = set(re.findall(r"(\w+) \d+[,)]", said.out.partition("rejected: ")[2].splitlines()[0]))
    assert reasons and reasons <= CHEATS[cheat]


def test_a_model_that_never_gives_a_task_is_asked_no_more(tmp_path, capsys):
    with answering(lambda asked: "No.") as endpoint:
        assert run(app, command(endpoint, tmp_path / "tasks.jsonl")) == 1
        assert 40 <= len(endpoint.asked) < 50
    assert "None of 40 draws gave a task" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["missing_parameter", "results"])
def test_a_message_that_gives_a_secret_away_is_rejected(tmp_path, capsys, kind):
    out, author, cheated = tmp_path / "tasks.jsonl", Author(), set()

    def script(asked):
        if asked.name.endswith("/read"):
            return author.answer(asked)
        texts = author.messages(asked.name)
        spoken = [intent for intent in author.intents(asked.name) if intent.asking]
        for number, intent in enumerate(spoken):
            if kind in author.path(asked.name).kinds and intent.secret and "/0/write" in asked.name:
                texts[number] += f" I think it is {intent.secret[0]}."
                cheated.add(asked.name)
        return json.dumps({"messages": texts})

    with answering(script) as endpoint:
        assert run(app, command(endpoint, out, count=MOST_TASKS)) == 0
    assert cheated
    assert f"gives_away {len(cheated)}" in capsys.readouterr().out


MISREADINGS = {
    "another tool": (lambda call: [{**call, "name": "no_such_tool"}], "other_calls"),
    "another argument": (lambda call: [{**call, "arguments": {**call["arguments"], "extra": 1}}], "other_arguments"),
    "nothing": (lambda call: [], "other_calls"),
    "one call more": (lambda call: [call, {"name": "withdraw_funds", "arguments": {"amount": 7.0}}], "other_calls"),
}


@pytest.mark.parametrize(("misread", "reason"), MISREADINGS.values(), ids=MISREADINGS)
def test_words_from_which_the_path_cannot_be_recovered_are_rejected(tmp_path, capsys, misread, reason):
    author = Author()

    def script(asked):
        if asked.name.endswith("/0/read"):
            turns = [[read for call in turn for read in misread(call)] for turn in author.calls(asked.name)]
            return json.dumps({"turns": turns})
        return author.answer(asked)

    with answering(script) as endpoint:
        assert run(app, command(endpoint, tmp_path / "tasks.jsonl", count=4)) == 0
    assert f"4 of 4 tasks, 8 draws (rejected: {reason} 4)" in capsys.readouterr().out


def test_the_cost_limit_holds_and_more_of_it_continues(tmp_path, capsys):
    out, author = tmp_path / "tasks.jsonl", Author()
    with answering(author.answer) as endpoint:
        assert run(app, command(endpoint, out, "--max-tokens-total", 20_000)) == 1
        said = capsys.readouterr()
        assert "could exceed the limit of 20,000 tokens" in said.err
        spent = [json.loads(line) for line in Path(f"{out}.answers.jsonl").read_text().splitlines()]
        assert 0 < sum(line["read"] + line["written"] for line in spent) <= 20_000
        assert 0 < len(read_task_file(out)) < 6
        assert run(app, command(endpoint, out, "--max-tokens-total", 2_000_000)) == 0
    assert len(read_task_file(out)) == 6
    assert set(endpoint.answered.values()) == {1}


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_midway_nothing_is_paid_twice(tmp_path, sent):
    out, author = tmp_path / "tasks.jsonl", Author()
    answers = Path(f"{out}.answers.jsonl")
    with answering(author.answer, delay_s=0.1) as endpoint:
        arguments = [str(each) for each in command(endpoint, out, count=8)]
        running = subprocess.Popen(
            [sys.executable, "-m", "seal.cli", "tasks", *arguments], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (answers.exists() and answers.read_bytes().count(b"\n") >= 3):
            time.sleep(0.02)
        running.send_signal(sent)
        _, said = running.communicate(timeout=60)
        kept = set(answers.read_bytes().split(b"\n")[:-1])
        assert 3 <= len(kept) < 16
        if sent == signal.SIGINT:
            assert running.returncode == exits.INTERRUPTED and "the same command resumes" in said
            assert len(kept) == endpoint.answered.total()  # those in flight were waited for
        else:
            with answers.open("a") as stream:
                stream.write('{"request": "half')
            time.sleep(1)  # the endpoint answers what was in flight, for nobody
        before = endpoint.answered.copy()
        assert run(app, command(endpoint, out, count=8)) == 0
    assert len(read_task_file(out)) == 8
    again = sum(count - before[name] for name, count in endpoint.answered.items())
    assert again == 16 - len(kept)


def test_two_processes_do_not_write_one_file(tmp_path, capsys):
    out = tmp_path / "tasks.jsonl"
    held = AnswerFile(out)
    with answering(Author().answer) as endpoint:
        assert run(app, command(endpoint, out)) == exits.USAGE
    held.close()
    assert "Another process writes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--writer", "llm", "--base-url", "http://127.0.0.1:9/v1"], "Name the model"),
        (["--writer", "llm", "--model", "m"], "No endpoint is named"),
        (["--writer", "llm", "--model", "m", "--base-url", "127.0.0.1:9"], "is not an address"),
        (["--writer", "llm", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"], "No OpenAI-compatible endpoint"),
        (["--model", "m"], "need --writer llm"),
        (["--writer", "llm", "--model", "m", "--base-url", "http://h/v1", "--concurrency", "0"], "must be positive"),
        (["--writer", "llm", "--model", "m", "--base-url", "http://h/v1", "--extra", "[1]"], "JSON object"),
        (["--writer", "llm", "--model", "m", "--base-url", "http://h/v1", "--extra", "{no"], "JSON object"),
    ],
)
def test_wrong_options_are_one_sentence(tmp_path, capsys, monkeypatch, options, sentence):
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "DASHSCOPE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert run(app, ["synthesise", *options, "--out", str(tmp_path / "x.jsonl")]) == exits.USAGE
    said = capsys.readouterr().err
    assert sentence in said and said.count("\n") == 1
    assert not os.path.exists(tmp_path / "x.jsonl")
