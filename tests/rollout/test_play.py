"""One episode of the real service, spoken to by a script."""

import asyncio
from dataclasses import replace

import pytest

from env_service.client import AsyncServiceClient
from seal.method.diagnosis import rules
from seal.rollout.episode import Episode
from seal.rollout.play import Terms, play
from seal.rollout.services import Services
from seal.settings.reward import RewardSettings
from tests.support.rollout_play import TASK, Script, reference_texts

PARAMS = {"split": "eval", "tool_prompt_mode": "compact"}
KNOWN = {"task_id": TASK, "data_source": "base", "category": "base", "split": "train", "sample": 0}


def played(url, speaker, **terms):
    async def one():
        services = Services([AsyncServiceClient(url)], restart_wait_s=5.0)
        try:
            return await play(Episode(services, TASK, PARAMS), speaker, KNOWN, Terms(**terms))
        finally:
            await services.close()

    return asyncio.run(one())


def test_a_speaker_plays_an_episode(url):
    record = played(url, Script(reference_texts()))
    assert record.passed and record.stop == "completed" and set(record.labels) == {"pass"}


def test_the_reward_of_a_taxonomy_counts_in_training_only(url, monkeypatch):
    def lenient(evaluation):
        return 1.0 if evaluation["valid"] else given

    monkeypatch.setitem(rules._BUILT_IN, "paper", replace(rules.taxonomy_of("paper"), reward=lenient))
    rules.taxonomy_of.cache_clear()
    wrong, given = ["Done."] * len(reference_texts()), 0.25
    trained, validated = (played(url, Script(wrong), training=t, taxonomy="paper") for t in (True, False))
    right = played(url, Script(reference_texts()), training=True, taxonomy="paper")
    given = float("nan")
    with pytest.raises(ValueError, match="reward of the taxonomy paper is nan"):
        played(url, Script(wrong), training=True, taxonomy="paper")
    rules.taxonomy_of.cache_clear()
    assert (trained.score, validated.score, right.score) == (0.25, 0.0, 1.0)
    assert (trained.passed, right.passed) == (False, True)


def test_a_reward_that_is_a_verdict_is_a_number(url, monkeypatch):
    own = replace(rules.taxonomy_of("paper"), reward=lambda evaluation: evaluation["valid"])
    monkeypatch.setitem(rules._BUILT_IN, "paper", own)
    rules.taxonomy_of.cache_clear()
    score = played(url, Script(reference_texts()), training=True, taxonomy="paper").score
    rules.taxonomy_of.cache_clear()
    assert score == 1.0


def test_a_validation_is_judged_by_the_verifier_whatever_the_reward(url):
    texts = reference_texts()
    first = texts[: texts.index("Done.") + 1]
    half = [*first, *["Done."] * len(texts)]
    trained, validated = (
        played(url, Script(half), training=training, reward=RewardSettings(mode="capped")) for training in (True, False)
    )
    assert 0 < trained.score < 0.5 and validated.score == 0.0 and trained.turns_passed == validated.turns_passed


def test_a_speaker_that_says_too_little_leaves_the_episode_open(url):
    record = played(url, Script(reference_texts()[:2]))
    assert record.stop == "open" and not record.passed and record.infra is None


def test_a_deadline_is_named_with_what_was_waited_for(url):
    record = played(url, Script(reference_texts()), deadline_s=0.0, deadline="--deadline")
    assert record.infra == "trajectory_deadline"
    assert record.infra_message.startswith("not finished after --deadline=0, waiting for the environment service")
