"""The committed policy's tokens: what lessons hold and what rollouts see are the same."""

import pytest
from transformers import AutoTokenizer
from verl.utils.tokenizer.continuous_token_wiring import (
    get_continuous_token_builder_class,
    resolve_continuous_token_model_family,
)

from env_service.environments.bfcl.catalog import load_tasks
from seal.method.interface.cues import Omega
from seal.system.paths import HOME
from shelf.testbed.policy.chat import encode
from tests.support.references import play_reference

END = "<|im_end|>"
TASKS = ("multi_turn_base_0", "multi_turn_base_10", "multi_turn_miss_func_103", "multi_turn_miss_param_162")


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(HOME / "data" / "quickstart_policy")


@pytest.mark.parametrize("task_id", TASKS)
def test_lessons_have_the_tokens_of_the_chat_template(tokenizer, task_id):
    messages = play_reference(load_tasks()[task_id], Omega.of(["schema_required"]))
    encoded = encode(tokenizer, messages)
    whole = tokenizer.apply_chat_template(list(messages), tokenize=False)
    assert list(encoded.ids) == tokenizer.encode(whole.rstrip("\n"))
    spoken = tokenizer.decode([token for token, said in zip(encoded.ids, encoded.spoken, strict=True) if said])
    assert spoken == "".join(message["content"] + END for message in messages if message["role"] == "assistant")


def test_a_rollout_in_the_trainer_builds_the_same_tokens(tokenizer):
    """Token by token as the agent loop does it: prompt, sampled message, boundary, observation."""
    family = resolve_continuous_token_model_family("auto", hf_model_type="qwen2")
    builder = get_continuous_token_builder_class(family)(tokenizer)
    messages = list(play_reference(load_tasks()["multi_turn_base_10"]))
    tokens = builder.build_initial_tokens(messages[:2])
    for place in range(2, len(messages) - 1, 2):
        said = tokenizer.encode(messages[place]["content"] + END)
        tokens = builder.merge_assistant_tokens(tokens, said).token_ids
        seen = messages[: place + 1]
        tokens = builder.merge_context_tokens(seen, [*seen, messages[place + 1]], tokens).token_ids
    tokens += tokenizer.encode(messages[-1]["content"] + END)
    assert tokens == list(encode(tokenizer, messages).ids)


def test_cues_stand_in_training_dialogues_only():
    task = load_tasks()["multi_turn_base_0"]
    plain, cued = play_reference(task), play_reference(task, Omega.of(["schema_required"]))
    assert play_reference(task, Omega()) == plain
    assert cued[0]["content"].startswith(plain[0]["content"] + "\n") and cued[1:] == plain[1:]
