"""Stored trajectories played again on the real service."""

from dataclasses import replace

import pytest

from seal.method.interface.cues import Omega
from seal.rollout.play import Terms
from seal.settings.reward import RewardSettings
from shelf.replay.player import Again, play_again
from tests.support.rollout_play import ScriptedEngine, reference_texts, roll_out, running_service

PARAMS = {"split": "eval", "tool_prompt_mode": "compact"}


@pytest.fixture(scope="module")
def url():
    with running_service() as service:
        yield service.url


def rolled_out(url, *overrides, **others):
    ((_, record),) = roll_out([url], ScriptedEngine(reference_texts()), *overrides, **others)
    return record


def again(url, record, params=PARAMS, **terms):
    (new,) = play_again([Again(record, params, Terms(**terms))], url)
    return new


@pytest.mark.parametrize(
    ("overrides", "omega"),
    [((), Omega.of(("schema_required", "feedback_error"), version=3)), (("seal.rollout.max_steps=3",), Omega())],
)
def test_a_rollout_played_again_gives_the_same_record(url, overrides, omega):
    stored = rolled_out(url, *overrides, omega=omega.to_json())
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
    stored = rolled_out(url, training=False)
    evidence = [dict(turn) for turn in stored.evidence]
    action = evidence[0]["actions"][0]
    call = {**action["calls"][0], "error": "deadline", "result": "Error during execution: it took too long"}
    evidence[0] = {**evidence[0], "actions": [{**action, "calls": [call]}, *evidence[0]["actions"][1:]]}
    new = again(url, replace(stored, evidence=tuple(evidence), day="2019-03-02"))
    repeated = new.evidence[0]["actions"][0]["calls"][0]
    assert (repeated["error"], repeated["result"]) == ("deadline", call["result"])
    assert new.day == "2019-03-02" and not new.passed


def test_a_record_that_the_environment_does_not_play_says_why(url):
    stored = replace(rolled_out(url, training=False), task_id="multi_turn_base_9999")
    new = again(url, stored)
    assert new.infra == "environment_refused" and "is unknown" in new.infra_message
