"""One episode of the real service, spoken to by a script, by a function, and by a stored record."""

import asyncio
from dataclasses import replace

import pytest

from env_service.client import AsyncServiceClient
from seal.interface.cues import Omega
from seal.rollout.episode import Episode
from seal.rollout.play import Terms, play
from seal.rollout.replay import Again, played_again
from seal.rollout.services import Services
from seal.rollout.speaker import Script
from seal.settings.reward import RewardSettings
from tests.support.rollout_play import TASK, ScriptedEngine, reference_texts, roll_out, running_service

PARAMS = {"split": "eval", "tool_prompt_mode": "compact"}
KNOWN = {"task_id": TASK, "data_source": "base", "category": "base", "split": "train", "sample": 0}


@pytest.fixture(scope="module")
def url():
    with running_service() as service:
        yield service.url


def played(url, speaker, **terms):
    async def one():
        services = Services([AsyncServiceClient(url)], restart_wait_s=5.0)
        try:
            return await play(Episode(services, TASK, PARAMS), speaker, KNOWN, Terms(**terms))
        finally:
            await services.close()

    return asyncio.run(one())


def again(url, record, params=PARAMS, **terms):
    (new,) = played_again([Again(record, params, Terms(**terms))], url)
    return new


def test_a_script_and_a_function_play_the_same_episode(url):
    scripted = played(url, Script(reference_texts()))
    assert scripted.passed and scripted.stop == "completed" and set(scripted.labels) == {"pass"}
    texts = reference_texts()
    spoken = played(url, Script(lambda messages: texts[sum(message["role"] == "assistant" for message in messages)]))
    assert (spoken.messages, spoken.evidence) == (scripted.messages, scripted.evidence)


def test_a_speaker_that_says_too_little_leaves_the_episode_open(url):
    record = played(url, Script(reference_texts()[:2]))
    assert record.stop == "open" and not record.passed and record.infra is None


def test_a_deadline_is_named_with_what_was_waited_for(url):
    record = played(url, Script(reference_texts()), deadline_s=0.0, deadline="--deadline")
    assert record.infra == "trajectory_deadline"
    assert record.infra_message.startswith("not finished after --deadline=0, waiting for the environment service")


@pytest.mark.parametrize(
    ("overrides", "omega"),
    [((), Omega.of(("schema_required", "feedback_error"), version=3)), (("seal.rollout.max_steps=3",), Omega())],
)
def test_a_rollout_played_again_gives_the_same_record(url, overrides, omega):
    ((_, stored),) = roll_out([url], ScriptedEngine(reference_texts()), *overrides, omega=omega.to_json())
    params = {"split": "train", "tool_prompt_mode": "compact", "enforce_available_tools": True}
    new = again(url, stored, params | {"omega": omega.to_json()}, training=True, taxonomy="paper")
    assert new == stored
    graded = again(
        url,
        stored,
        params | {"omega": omega.to_json()},
        training=True,
        reward=RewardSettings.read({"mode": "capped", "cut": "exclude"}, "reward"),
    )
    assert graded.excluded == bool(overrides) and graded.labels == stored.labels


def test_a_call_that_exceeded_a_limit_is_refused_again_and_the_date_is_the_record_s(url):
    stored = played(url, Script(reference_texts()))
    evidence = [dict(turn) for turn in stored.evidence]
    action = evidence[0]["actions"][0]
    call = {**action["calls"][0], "error": "deadline", "result": "Error during execution: it took too long"}
    evidence[0] = {**evidence[0], "actions": [{**action, "calls": [call]}, *evidence[0]["actions"][1:]]}
    new = again(url, replace(stored, evidence=tuple(evidence), day="2019-03-02"))
    repeated = new.evidence[0]["actions"][0]["calls"][0]
    assert (repeated["error"], repeated["result"]) == ("deadline", call["result"])
    assert new.day == "2019-03-02" and not new.passed


def test_a_record_that_the_environment_does_not_play_says_why(url):
    stored = replace(played(url, Script(reference_texts())), task_id="multi_turn_base_9999")
    new = again(url, stored)
    assert new.infra == "environment_refused" and "is unknown" in new.infra_message
