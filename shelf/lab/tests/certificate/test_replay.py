"""What the real agent loop records of an episode on the real service, a replay on the service finds again."""

import json
from dataclasses import replace

import pytest

from seal.rollout.budgets import Budgets
from seal.settings import SealSettings
from shelf.lab.certificate.file import Record
from shelf.lab.certificate.places import difference
from shelf.lab.certificate.replay import Line, Stage
from shelf.lab.certificate.unordered import in_one_order
from shelf.view.again import played_again
from tests.support.rollout_play import TASK, ScriptedEngine, configured, reference_texts, roll_out, running_service

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
    config = configured([url], *overrides)
    stage = Stage(
        step=1,
        training=training,
        settings=SealSettings.of(config),
        budgets=Budgets.of(config),
        prompt_mode=config.env_service.prompt_mode,
        omega=omega,
        sides={("base", TASK): "train" if training else "val"},
    )
    text = json.dumps({stage.kind: replace(record, step=1).line()}).encode()
    line = Line(Record(0, stage.kind, text, "", True), stage)
    (again,) = played_again([line.again], url)
    found = line.compared(again)
    assert not found.problems, found.problems[0]
    assert found.record.labels == record.labels and len(record.times) == sum(
        m["role"] == "assistant" for m in record.messages
    )


@pytest.mark.parametrize(
    ("written", "found", "other"),
    [
        ("One of {'first', 'economy'}", "One of {'economy', 'first'}", "One of {'economy', 'roof'}"),
        ("Invalid fields for update: b, a", "Invalid fields for update: a, b", "Invalid fields for update: a, c"),
        ("['b', 'a']", "['b', 'a']", "['a', 'b']"),
    ],
)
def test_texts_agree_whatever_the_order_of_a_printed_set(written, found, other):
    assert difference([{"content": written}], [{"content": found}], same=in_one_order) is None
    assert difference([{"content": written}], [{"content": other}], same=in_one_order) is not None
