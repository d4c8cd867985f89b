"""A replay on the service reproduces the real agent loop's record of an episode on the real service."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seal.records.folder import RunFolder
from seal.records.trajectory import CUTS, TrajectoryRecord
from seal.rollout.speaker import FAILED, REFUSAL
from shelf.lab.verify import LABELS, VERDICT
from shelf.replay.player import Recorded, play_again
from shelf.replay.stored import StoredLog
from shelf.statistics.launches import Launch
from tests.support.rollout_play import ScriptedEngine, configured, reference_texts, roll_out, running_service

OMEGA = {"version": 2, "cues": {"*": ["feedback_error", "schema_types"]}}
WORDY = [text if "tool_call" in text else "word " * 80 for text in reference_texts()]
FAULTY = [
    text.replace("</tool_call>", "") if number % 3 == 1 else text for number, text in enumerate(reference_texts())
]
MODEL_LENGTH = ("data.max_prompt_length=400", "actor_rollout_ref.rollout.max_model_len=500")


@pytest.fixture(scope="module")
def url():
    with running_service() as service:
        yield service.url


@pytest.mark.parametrize(
    ("texts", "training", "omega", "overrides"),
    [
        (reference_texts(), True, None, ()),
        (reference_texts(), False, None, ()),
        (FAULTY, True, OMEGA, ("seal.reward.mode=t3rl",)),
        (FAULTY, False, None, ()),
        (FAULTY, True, OMEGA, ("seal.interface.share=0.5",)),
        (WORDY, True, None, ("seal.rollout.max_message_tokens=64",)),
        (WORDY, False, None, ("seal.rollout.validation_message_tokens=64",)),
        (reference_texts(), True, OMEGA, ("seal.rollout.max_steps=3", "seal.reward.cut=exclude")),
        (reference_texts(), True, None, ("data.max_response_length=200",)),
        (reference_texts(), True, None, MODEL_LENGTH),
        (reference_texts(), True, None, ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=500",)),
    ],
)
def test_an_episode_of_the_agent_loop_is_found_again(url, texts, training, omega, overrides):
    ((_, record),) = roll_out([url], ScriptedEngine(texts), *overrides, training=training, omega=omega)
    config = OmegaConf.to_container(configured([url], *overrides), resolve=True)
    launch = Launch.of({"step": 0, "config": config, "rows": {"training": [], "validation": []}})
    log = StoredLog(Path("1.jsonl"), 1, training, RunFolder("."), launch)
    (again,) = play_again([log.again(record, log.terms(None, {}), {2: OMEGA})], url)
    assert again.infra is None and again.messages == record.messages
    for name in (*VERDICT, *LABELS, "silent"):
        assert getattr(again, name) == getattr(record, name), name


@pytest.mark.parametrize("stop", [*CUTS, REFUSAL, FAILED])
def test_a_replay_gives_up_for_the_reason_of_the_record(stop):
    known = {"task_id": "t", "data_source": "base", "category": "base", "split": "train", "sample": 0}
    assert Recorded(TrajectoryRecord(**known, score=0.0, stop=stop)).limit == stop
