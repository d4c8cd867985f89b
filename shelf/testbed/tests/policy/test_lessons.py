"""Lessons: dialogues that pass, cues that are the environment's own words, and names that only a cue tells."""

import json
import random
import re

import pytest

from env_service.environments.bfcl.catalog import all_tools, load_tasks
from shelf.testbed.policy.dialogue import parsed
from shelf.testbed.policy.lessons import LessonSettings, few_tools, lesson, micro_lessons
from shelf.testbed.policy.renaming import CUED, Renaming, argument_names
from shelf.testbed.policy.synthetic import SyntheticSettings, synthetic_lessons
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise

SETTINGS = LessonSettings(cue_share=0.6, slip_share=0.5)
CALL = re.compile(r"<tool_call>(\{.*?\})</tool_call>", re.DOTALL)


@pytest.fixture(scope="module")
def transcripts(lessons):
    return lessons.whole


@pytest.fixture(scope="module")
def lessons():
    return synthetic_lessons(SyntheticSettings(count=150), SETTINGS, seed=3)


def calls_of(transcript):
    for position, message in enumerate(transcript.messages):
        spoken = message["role"] == "assistant" and position not in transcript.slips
        if spoken and (found := CALL.fullmatch(message["content"])):
            yield position, json.loads(found[1])


def test_the_seed_decides_and_most_tasks_have_a_lesson(lessons, transcripts):
    assert lessons == synthetic_lessons(SyntheticSettings(count=150), SETTINGS, seed=3)
    assert lessons.whole[:5] != synthetic_lessons(SyntheticSettings(count=5), SETTINGS, seed=4).whole
    assert len(transcripts) > 120
    assert sum(bool(transcript.slips) for transcript in transcripts) > 15


def told(transcript, position):
    """What cues and answers have said before a message; requests do not tell names."""
    earlier = (message["content"] for message in transcript.messages[:position] if message["role"] != "assistant")
    return " ".join(text for text in earlier if re.search("Required: |<tool_response>", text))


def test_the_arguments_of_a_cued_tool_stand_in_an_earlier_cue_or_answer(transcripts):
    calls = 0
    for transcript in transcripts:
        for position, call in calls_of(transcript):
            if call["name"] in CUED and call["arguments"]:
                assert all(re.search(rf"\b{name}\b", told(transcript, position)) for name in call["arguments"])
                calls += 1
    assert calls > 40


def test_a_reading_lesson_has_the_call_s_names_in_its_cue_and_nowhere_else(lessons):
    renamed = 0
    for transcript in lessons.reading:
        system, request, _ = (message["content"] for message in transcript.messages)
        ((_, call),) = calls_of(transcript)
        assert re.search(rf"(: |; ){call['name']} ", system) and call["arguments"]
        assert set(call["arguments"]) <= set(re.search(rf"(?:: |; ){call['name']} ([^;\n]+)", system)[1].split())
        assert "Required" not in request
        renamed += not call["arguments"].keys() & set(argument_names()[call["name"]])
    assert len(lessons.reading) > 25 and renamed > 0.6 * len(lessons.reading)


def test_no_lesson_shows_the_real_name_of_a_cued_tool_s_argument(transcripts):
    for transcript in transcripts:
        lines = "\n".join(m["content"] for m in transcript.messages if m["role"] != "assistant")
        for entry in re.findall(r"(?:Required: |; )(\w+) ([^;\n]+)", lines):
            if entry[0] in CUED:
                assert not set(entry[1].split()) & set(argument_names()[entry[0]])
        for _, call in calls_of(transcript):
            if call["name"] in CUED:
                assert not call["arguments"].keys() & set(argument_names()[call["name"]])


def test_a_renamed_schema_is_the_one_that_the_episode_would_show(transcripts):
    """With nothing renamed, the lesson is the episode's own text; what is renamed differs in names only."""
    made = next(iter(synthesise(Grammar(), 1, seed=8)))
    names = {name for name in argument_names() if name in str(made.reference)}
    renaming = Renaming.draw(sorted(names), random.Random(0))
    for document in all_tools(made.task):
        renamed = renaming.document(document)
        own = document["parameters"]["properties"]
        assert list(renamed["parameters"]["properties"].values()) == list(own.values())
        assert len(renamed["parameters"]["required"]) == len(document["parameters"]["required"])
        if document["name"] in names and own:
            assert not renamed["parameters"]["properties"].keys() & own.keys()


def test_every_lesson_of_the_benchmark_s_training_side_passes_its_episode():
    rng = random.Random(5)
    for number in (0, 10, 103, 140):
        task = few_tools(load_tasks()[f"multi_turn_base_{number}"], rng)
        assert {call.split("(")[0] for calls in task.reference for call in calls}.isdisjoint(task.hidden)
        for _ in range(4):
            transcript = lesson(task, parsed(task.reference), SETTINGS, rng)
            assert transcript is None or transcript.messages[-1]["role"] == "assistant"


def test_micro_lessons_hold_one_call_whose_values_stand_in_the_request(transcripts):
    found = [micro for transcript in transcripts for micro in micro_lessons(transcript)]
    assert len(found) > 100
    for request, call in (micro.messages for micro in found):
        content = json.loads(CALL.fullmatch(call["content"])[1])
        assert content["name"] not in CUED
        for value in content["arguments"].values():
            if isinstance(value, str):
                assert value.lower() in request["content"].lower()


def test_a_share_outside_zero_and_one_is_refused():
    with pytest.raises(ValueError, match="cue_share must be between 0 and 1"):
        LessonSettings(cue_share=2)
