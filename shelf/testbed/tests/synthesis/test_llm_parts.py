"""The parts of the exploration: JSON out of prose, values in words, recovered calls, addresses, cost."""

import asyncio
import itertools
import json
import random
from functools import cache
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from env_service.environments.bfcl.catalog import documents, load_tasks
from env_service.environments.bfcl.tools import Toolbox, parse_reference
from shelf.suites.answers import Reply, RequestRefused
from shelf.suites.endpoint import DASHSCOPE_URL, OPENAI_URL, Endpoint, Sampling
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.llm.model import FAULTS_IN_A_ROW, AnswerFile, EndpointModel, Rejected
from shelf.testbed.synthesis.llm.prompts import read_answer
from shelf.testbed.synthesis.llm.recovery import Expected, Reading, disagreement, expected_calls
from shelf.testbed.synthesis.llm.words import is_copied, pasted, says, similarity, without
from shelf.testbed.synthesis.make import synthesise
from shelf.testbed.synthesis.path import PathCall

PROSE = st.text(alphabet=st.characters(exclude_characters="{}`<>"), max_size=40)


class Listed(BaseModel):
    items: list[str]


@settings(max_examples=60)
@given(before=PROSE, after=PROSE, value=st.dictionaries(st.text(max_size=5), st.integers(), max_size=3))
def test_an_object_is_found_in_any_prose(before, after, value):
    wanted = {**value, "items": ["{a} and }"]}
    assert read_answer(f"{before}{json.dumps(wanted)}{after}", Listed).items == wanted["items"]


@given(text=st.text(max_size=200))
def test_any_text_is_read_without_an_error(text):
    assert read_answer(text, Listed) is None or "items" in text


@pytest.mark.parametrize(
    "around",
    [
        "Sure! Here you go:\n{}\nLet me know if {{you}} need more.",
        "```json\n{}\n```",
        '<think>Maybe {{"items": []}}?</think>\n{}',
        'First draft: {{"items": ["x"]}}. Better:\n{}',
    ],
)
def test_the_last_object_with_the_key_is_the_answer(around):
    assert read_answer(around.format('{"items": ["a"]}'), Listed).items == ["a"]


@pytest.mark.parametrize(
    "text", ['{"items": ["a", "b"', "", "I cannot help with that.", '{"items": [null]}', '{"x": []}']
)
def test_another_shape_is_no_answer(text):
    assert read_answer(text, Listed) is None


def test_deep_nonsense_is_read_in_time():
    assert read_answer('{"items":' * 50_000, Listed) is None


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("Buy 5 shares at $1,250.50.", 1250.5, True),
        ("Buy 5 shares.", 5.0, True),
        ("Buy 15 shares.", 5, False),
        ("It costs 5.25.", 5, False),
        ("Is it 5?", 5, True),
        ("Open Notes.TXT now", "notes.txt", True),
        ("the meter", "m", False),
        ("in m, please", "m", True),
        ("first, then   second", "then second", True),
        ("3, 4 and 5", [3, 4, 5], True),
        ("3 and 4", [3, 4, 5], False),
        ("priority two", {"priority": 2}, False),
        ("anything", True, True),
    ],
)
def test_a_text_says_a_value_or_not(text, value, said):
    assert says(text, value) == said


@given(
    values=st.lists(st.one_of(st.integers(0, 10**6), st.text(alphabet="abcd_.", min_size=4, max_size=9)), max_size=4)
)
def test_a_value_that_is_taken_out_is_no_longer_said(values):
    text = " and ".join(map(str, values))
    assert not any(says(without(text, values), value) for value in values)


TOOLS = (*documents("GorillaFileSystem"), *documents("TicketAPI"))


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("Please create a ticket titled 'a b'.", None),
        ("Find the file and sort it, then echo what I said.", None),
        ("I want to touch base on the tail of the report (see the notes).", None),
        ("Use create_ticket for this.", "create_ticket"),
        ("Please mkdir a folder.", "mkdir"),
        ("Please sort(file_name='x').", "file_name"),
        ("Please sort('x').", "sort"),
        ("The ticket_id is 3.", "ticket_id"),
        ("Make it with title=foo.", "title"),
        ('Send {"content": "x"}.', '{"content":'),
        ("<tool_call> now", "<tool_call>"),
        ("Open my file create_ticket.txt.", None),
    ],
)
def test_pasted_names_are_found_and_plain_words_are_not(message, found):
    assert pasted(message, TOOLS, ["create_ticket.txt"]) == found


@cache
def expected_of(number):
    """Return the calls that a reader must recover from the messages of a synthesised task without a special turn."""
    made = (task for task in synthesise(Grammar(), 60, 3) if task.category == "base")
    task = next(itertools.islice(made, number, None))
    turns = [[PathCall(*parse_reference(call)) for call in calls] for calls in task.reference]
    return expected_calls(turns, task.users, task.task)


@settings(max_examples=60)
@given(number=st.integers(0, 30), seed=st.integers(0, 1000))
def test_one_changed_call_is_noticed(number, seed):
    """A reader who misses or changes one expected call never agrees; one who lists all of them does."""
    rng, expected = random.Random(seed), expected_of(number)
    calls = [[one.call for one in turn] for turn in expected]
    assert disagreement(expected, calls) is None
    turn, index = rng.choice([(turn, index) for turn, made in enumerate(calls) for index in range(len(made))])
    call, free = expected[turn][index]
    fixed = sorted(call.arguments.keys() - free)
    if fixed and rng.random() < 0.5:
        calls[turn][index] = PathCall(call.name, {**call.arguments, rng.choice(fixed): "something else"})
    else:
        del calls[turn][index]
    assert disagreement(expected, calls) in ("other_calls", "other_arguments")


CD, LS, TOUCH = (
    PathCall(*call) for call in (("cd", {"folder": "a"}), ("ls", {}), ("touch", {"file_name": "Notes.txt"}))
)


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        ([CD, TOUCH], None),
        ([LS, CD, LS, PathCall("touch", {"file_name": " Notes.txt"})], None),
        ([CD, PathCall("touch", {"file_name": "notes.txt"})], "other_arguments"),
        ([TOUCH, CD], "other_arguments"),
        ([CD, TOUCH, TOUCH], "other_calls"),
        ([CD, TOUCH, PathCall("no_such_tool", {})], "other_calls"),
        ([CD], "other_calls"),
    ],
)
def test_a_reading_agrees_if_it_has_the_calls_in_their_order_and_changes_nothing_more(read, problem):
    assert disagreement([[Expected(CD), Expected(TOUCH)]], [read]) == problem


def test_a_value_that_only_a_result_tells_is_free():
    task = load_tasks()["multi_turn_base_0"]
    listed = next(
        name for name in Toolbox(task).call("ls", {"a": True}).text.split('"') if len(name) > 5 and name.isalpha()
    )
    turns = [[PathCall("ls", {"a": True})], [PathCall("cd", {"folder": listed})]]
    shown = expected_calls(turns, ("What is here?", "Go there."), task)
    said = expected_calls(turns, ("What is here?", f"Go to {listed}."), task)
    assert (shown[1][0].free, said[1][0].free) == ({"folder"}, set())


@pytest.mark.parametrize(
    "answer",
    [{"turns": [None]}, {"turns": [[{"name": 3}]]}, {"turns": [[{"name": "ls", "arguments": [1]}]]}, {}],
)
def test_an_answer_of_another_shape_is_no_reading(answer):
    assert read_answer(json.dumps(answer), Reading) is None


def test_a_run_of_words_of_the_benchmark_is_a_copy():
    long = next(user for user in load_tasks()["multi_turn_base_0"].users if len(user.split()) > 12)
    assert is_copied([f"Well, {long.upper()}"])
    assert not is_copied([None, "Please do something that nobody has ever asked an assistant for before."])


def test_similarity_is_of_words():
    assert similarity(["Open the file!"], ["open The FILE"]) == 1
    assert similarity(["Open the file"], ["Sell all shares"]) == 0


@pytest.mark.parametrize(
    ("environment", "base_url", "expected"),
    [
        ({"OPENAI_API_KEY": "a"}, None, (OPENAI_URL, "OPENAI_API_KEY")),
        ({"DASHSCOPE_API_KEY": "d"}, None, (DASHSCOPE_URL, "DASHSCOPE_API_KEY")),
        ({"OPENAI_API_KEY": "a", "DASHSCOPE_API_KEY": "d"}, None, (OPENAI_URL, "OPENAI_API_KEY")),
        ({"OPENAI_API_KEY": "a", "DASHSCOPE_API_KEY": "d"}, DASHSCOPE_URL, (DASHSCOPE_URL, "DASHSCOPE_API_KEY")),
        ({"OPENAI_BASE_URL": "http://h/v1", "DASHSCOPE_API_KEY": "d"}, None, ("http://h/v1", "OPENAI_API_KEY")),
        ({"OPENAI_BASE_URL": "http://h/v1"}, "http://g/v1", ("http://g/v1", "OPENAI_API_KEY")),
        ({"DASHSCOPE_API_KEY": "d"}, "https://aliyuncs.com.example.org/v1", (None, "OPENAI_API_KEY")),
    ],
)
def test_the_environment_names_endpoint_and_key(monkeypatch, environment, base_url, expected):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DASHSCOPE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    named = Endpoint.named(base_url, "m", {})
    assert (named.url, named.key_variable) == (expected[0] or base_url, expected[1])


def test_refusals_of_a_filter_are_no_failure_of_the_endpoint(tmp_path):
    async def refuse(*_):
        raise RequestRefused("not these words")

    client = SimpleNamespace(endpoint=Endpoint("http://h/v1", "m"), complete=refuse)
    kept = AnswerFile(tmp_path / "x.jsonl")
    model = EndpointModel(client, kept)
    for number in range(FAULTS_IN_A_ROW + 1):
        with pytest.raises(Rejected, match="refusal"):
            asyncio.run(model.ask([{"role": "user", "content": "?"}], Sampling(), str(number)))
    kept.close()
    assert model.stopped is None


def test_a_damaged_file_of_answers_is_named(tmp_path):
    kept = AnswerFile(tmp_path / "x.jsonl")
    kept.add("a", Reply("hi", False, 1, 3))
    kept.close()
    again = AnswerFile(tmp_path / "x.jsonl")
    assert (again.get("a").text, again.spent.total) == ("hi", 4)
    again.close()
    (tmp_path / "x.jsonl.answers.jsonl").write_text('{"request": "a"}\n')
    with pytest.raises(ValueError, match=r"x\.jsonl\.answers\.jsonl are damaged .*text"):
        AnswerFile(tmp_path / "x.jsonl")
