"""TRL's trainer trains the small policy on the service's episodes, on a CPU."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from seal_trl import SealSpec, SealTrainer
from seal_trl.tokens import Tokens
from seal_trl.trainer import RHO
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from env_service.client import ServiceError

URL, POLICY = os.environ["SEAL_URL"], os.environ["SEAL_POLICY"]
TASKS = [f"multi_turn_base_{scenario}" for scenario in (10, 12, 15, 32)]
"""Their first turns are passed sometimes by this policy."""


def train(folder: Path, kind: type[GRPOTrainer], steps: int) -> tuple[GRPOTrainer, list[dict]]:
    """A trained trainer, and what its scoring gave: rewards, labels and advantages by step."""
    seen = []

    class Watched(kind):
        def _generate_and_score_completions(self, inputs):
            scored = super()._generate_and_score_completions(inputs)
            rows = [{name: row[name] for name in ("prompt", "passed", "labels")} for row in inputs]
            seen.append({"rows": rows, **scored})
            return scored

    spec = SealSpec("train", tasks=TASKS, base_url=URL, tool_prompt_mode="compact", turns=1)
    config = GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=8,
        num_generations=8,
        max_completion_length=96,
        max_steps=steps,
        learning_rate=1e-4,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        shuffle_dataset=False,
        seed=0,
    )
    trainer = Watched(
        model=POLICY,
        args=config,
        train_dataset=spec.train_dataset,
        rollout_func=spec.rollout_func,
        reward_funcs=spec.reward_funcs,
    )
    trainer.train()
    return trainer, seen


def test_four_steps_train_with_the_service_s_verdict_and_seal_s_weights(tmp_path: Path):
    trainer, seen = train(tmp_path, SealTrainer, steps=4)
    history = [line for line in trainer.state.log_history if "reward" in line]
    assert len(history) == len(seen) == 4
    for line, step in zip(history, seen, strict=True):
        rewards = torch.tensor([row["passed"] for row in step["rows"]])
        assert line["reward"] == pytest.approx(rewards.mean().item(), abs=1e-6)
        assert all(row["labels"] and set(row["labels"]) <= set(RHO) for row in step["rows"])
        assert (rewards == 1).tolist() == [row["labels"] == ["pass"] for row in step["rows"]]
        spread = rewards.std() > 0
        w = torch.tensor([RHO[row["labels"][0]] for row in step["rows"]]).clamp(0.5, 2.0)
        expected = (rewards - rewards.mean()) / (rewards.std() + 1e-4) * w
        torch.testing.assert_close(step["advantages"].cpu(), expected, atol=1e-5, rtol=0)
        assert (line["grad_norm"] > 0) == bool(spread)
        assert line["seal/w"] == pytest.approx(w.mean().item(), abs=1e-6)
    assert any(line["grad_norm"] > 0 for line in history)


def test_only_sampled_tokens_are_trained_and_the_stream_is_what_the_template_writes(tmp_path: Path):
    trainer, (step,) = train(tmp_path, GRPOTrainer, steps=1)
    tokenizer = trainer.processing_class
    for ids, mask, trained in zip(step["completion_ids"], step["completion_mask"], step["tool_mask"], strict=True):
        kept = ids[mask.bool()]
        text = tokenizer.decode(kept)
        sampled = tokenizer.decode(kept[trained[mask.bool()].bool()])
        assert "<tool_response>" not in sampled and text.startswith(sampled.split("<|im_end|>")[0])
        assert ("<tool_response>" in text) == (trained[mask.bool()] == 0).any().item()


def test_a_cut_message_gets_its_end_as_context_and_a_template_that_forgets_is_refused():
    tokenizer = AutoTokenizer.from_pretrained(POLICY)
    opening = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    tokens, ids = Tokens(tokenizer, opening), tokenizer.encode("hello")
    assert tokens.said(ids, None) == "hello" and tokens.cut and not tokens.scored
    tokens.answered([{"role": "user", "content": "c"}])
    messages = [*opening, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "c"}]
    whole = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert tokens.ids == whole and tokens.mask == [1] * len(ids) + [0] * (len(whole) - len(tokens.prompt) - len(ids))
    tokenizer.chat_template = (
        "{% for m in messages[-2:] %}{{ m.role }}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    )
    forgetful = Tokens(tokenizer, opening)
    forgetful.said(ids, None)
    with pytest.raises(ValueError, match="rewrites earlier messages"):
        forgetful.answered([{"role": "user", "content": "c"}])


def test_episodes_are_released_if_a_later_one_cannot_be_opened(monkeypatch):
    spec, names = SealSpec("train", tasks=[*TASKS, "no_such_task"], base_url=URL), []
    create = spec.service.create
    monkeypatch.setattr(spec.service, "create", lambda task, name, more: names.append(name) or create(task, name, more))
    trainer = SimpleNamespace(
        processing_class=AutoTokenizer.from_pretrained(POLICY),
        model=SimpleNamespace(config=SimpleNamespace(max_position_embeddings=4096)),
    )
    with pytest.raises(ServiceError):
        spec.rollout_func(spec.train_dataset["prompt"], trainer)
    assert len(names) == 5 and not any(map(spec.service.release, names))


def test_a_dead_service_ends_the_training(tmp_path: Path):
    with pytest.raises(ServiceError):
        SealSpec("train", base_url="http://127.0.0.1:1")
