"""The parts of the writers that ask a model: JSON out of prose, values in words, recovered calls, addresses, cost."""

import asyncio
import json
import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from env_service.environments.bfcl.catalog import documents, load_tasks
from env_service.environments.bfcl.task_file import Provenance
from seal.diagnosis.categories import LEVELS
from shelf.suites.chat import DASHSCOPE_URL, OPENAI_URL, address_of
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.llm.answers import Answer, AnswerFile
from shelf.testbed.synthesis.llm.budget import Budget, BudgetReached, Tokens
from shelf.testbed.synthesis.llm.intent import path_intents
from shelf.testbed.synthesis.llm.json_answer import read_answer
from shelf.testbed.synthesis.llm.recovery import Reading, disagreement
from shelf.testbed.synthesis.llm.words import copied_from, pasted, says, similarity, without
from shelf.testbed.synthesis.llm.writer import LlmWriter
from shelf.testbed.synthesis.make import made_task
from shelf.testbed.synthesis.path import PathCall

PROSE = st.text(alphabet=st.characters(exclude_characters="{}`<>"), max_size=40)


class Listed(BaseModel):
    items: list[str]


@settings(deadline=None, max_examples=60)
@given(before=PROSE, after=PROSE, value=st.dictionaries(st.text(max_size=5), st.integers(), max_size=3))
def test_an_object_is_found_in_any_prose(before, after, value):
    wanted = {**value, "items": ["{a} and }"]}
    assert read_answer(f"{before}{json.dumps(wanted)}{after}", Listed).items == wanted["items"]


@settings(deadline=None)
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
def recovered(level, number):
    """The intents of a path, and the calls of a perfect reader."""
    path = LlmWriter(None, 3, level).path_of(number, 0)
    task = made_task(path, tuple(t and "" for t in path.turns), level, Provenance(writer="x", seed=0, number=0)).task
    intents = path_intents(path, task)
    return path, intents, [[each.call for each in intent.expected] for intent in intents]


@pytest.mark.parametrize("level", LEVELS)
def test_the_grammars_words_say_what_they_must_and_keep_what_they_must_not(level):
    for number in range(25):
        path, intents, calls = recovered(level, number)
        assert disagreement(intents, calls) is None
        assert disagreement(intents, path.calls) is None
        for message, intent in zip(Grammar().write(path, level, random.Random(number)), intents, strict=True):
            if message is not None and intent.asking != "value":
                assert all(says(message, value) for value in intent.say), (message, intent)
                hidden = without(message, (*intent.say, *intent.before))
                assert not any(says(hidden, value) for value in intent.secret), (message, intent)


@settings(deadline=None, max_examples=60)
@given(number=st.integers(0, 30), seed=st.integers(0, 1000))
def test_one_changed_call_is_noticed(number, seed):
    """A reader who misses or changes one expected call never agrees."""
    rng = random.Random(seed)
    _, intents, calls = recovered("train", number)
    places = [(turn, index) for turn, made in enumerate(calls) for index in range(len(made))]
    turn, index = rng.choice(places)
    call, free = intents[turn].expected[index].call, intents[turn].expected[index].free
    fixed = sorted(call.arguments.keys() - free)
    changed = [list(made) for made in calls]
    if fixed and rng.random() < 0.5:
        name = rng.choice(fixed)
        changed[turn][index] = PathCall(call.name, {**call.arguments, name: "something else"})
    else:
        del changed[turn][index]
    assert disagreement(intents, changed) in ("other_calls", "other_arguments")


@pytest.mark.parametrize(
    "answer",
    [{"turns": [None]}, {"turns": [[{"name": 3}]]}, {"turns": [[{"name": "ls", "arguments": [1]}]]}, {}],
)
def test_an_answer_of_another_shape_is_no_reading(answer):
    assert read_answer(json.dumps(answer), Reading) is None


def test_a_run_of_words_of_the_benchmark_is_a_copy():
    long = next(user for user in load_tasks()["multi_turn_base_0"].users if len(user.split()) > 12)
    assert copied_from([f"Well, {long.upper()}"]).endswith("_0")
    assert copied_from([None, "Please do something that nobody has ever asked an assistant for before."]) is None


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
    url, key = address_of(base_url)
    assert (url, key) == (expected[0] or base_url, expected[1])


@settings(deadline=None)
@given(costs=st.lists(st.integers(1, 40), min_size=1, max_size=12), limit=st.integers(1, 200))
def test_a_budget_is_never_exceeded(costs, limit):
    """Requests that cost at most what they reserve, all at once."""
    spent = Tokens()

    async def one(budget, most):
        try:
            async with budget.reserve(most):
                await asyncio.sleep(0)
                spent.add(most - most // 3, 0)
        except BudgetReached:
            return False
        return True

    async def everything():
        budget = Budget(limit, spent)
        return await asyncio.gather(*(one(budget, most) for most in costs))

    admitted = asyncio.run(asyncio.wait_for(everything(), 10))
    assert spent.total <= limit
    assert spent.requests == sum(admitted)
    assert all(admitted) or sum(costs) > limit


def test_a_damaged_file_of_answers_is_named(tmp_path):
    kept = AnswerFile(tmp_path / "x.jsonl")
    kept.add("a", Answer("hi", False, 3, 1))
    kept.close()
    again = AnswerFile(tmp_path / "x.jsonl")
    assert (again.get("a").text, again.spent.total) == ("hi", 4)
    again.close()
    (tmp_path / "x.jsonl.answers.jsonl").write_text('{"request": "a"}\n')
    with pytest.raises(ValueError, match=r"damaged: .*:1: has no text"):
        AnswerFile(tmp_path / "x.jsonl")
