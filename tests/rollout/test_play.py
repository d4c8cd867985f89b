"""One episode of the real service, spoken to by a script."""

import asyncio

import pytest

from env_service.client import AsyncServiceClient
from seal.rollout.episode import Episode
from seal.rollout.play import Terms, play
from seal.rollout.services import Services
from tests.support.rollout_play import TASK, Script, reference_texts, running_service

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


def test_a_speaker_plays_an_episode(url):
    record = played(url, Script(reference_texts()))
    assert record.passed and record.stop == "completed" and set(record.labels) == {"pass"}


def test_a_speaker_that_says_too_little_leaves_the_episode_open(url):
    record = played(url, Script(reference_texts()[:2]))
    assert record.stop == "open" and not record.passed and record.infra is None


def test_a_deadline_is_named_with_what_was_waited_for(url):
    record = played(url, Script(reference_texts()), deadline_s=0.0, deadline="--deadline")
    assert record.infra == "trajectory_deadline"
    assert record.infra_message.startswith("not finished after --deadline=0, waiting for the environment service")
