"""Trajectories of the real agent loop over the real service; an engine with a script stands for vLLM."""

import pytest
from ray.exceptions import RayActorError

from seal.method.interface.cues import Omega
from seal.records.trajectory import CUTS
from seal.training.closed_loop import by_prompt, mark_groups
from tests.support.rollout_play import ScriptedEngine, TokenOutput, reference_texts, roll_out, tokenizer

LONG = "<tool_call>" + " sort" * 400


def sampled(output) -> list[int]:
    return [token for token, kept in zip(output.response_ids, output.response_mask, strict=True) if kept]


def test_what_is_trained_is_what_was_sampled(url):
    engine = ScriptedEngine(reference_texts())
    ((output, record),) = roll_out([url], engine)
    said = [
        [*tokenizer().encode(text, add_special_tokens=False), tokenizer().eos_token_id] for text in reference_texts()
    ]
    assert sampled(output) == [token for ids in said for token in ids]
    given = [-0.001 * (i + 1) - number for number, ids in enumerate(said, 1) for i in range(len(ids))]
    assert [p for p, kept in zip(output.response_logprobs, output.response_mask, strict=True) if kept] == given
    # Each prompt of the engine is the beginning of the stream that is trained.
    stream = output.prompt_ids + output.response_ids
    assert all(stream[: len(prompt)] == prompt for prompt in engine.prompts)
    assert record.score == 1.0 and record.stop == "completed"


def test_tokens_that_their_text_would_not_give_again_are_trained_as_sampled(url):
    spelled = [tokenizer().encode(letter, add_special_tokens=False)[0] for letter in "Done."]
    assert spelled != tokenizer().encode("Done.", add_special_tokens=False)

    async def letter_by_letter(number):
        ids = [*spelled, tokenizer().eos_token_id]
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids), stop_reason="completed")

    ((output, record),) = roll_out([url], ScriptedEngine((), letter_by_letter))
    assert sampled(output) == [*spelled, tokenizer().eos_token_id] * record.turns
    assert record.infra is None


@pytest.mark.parametrize(
    ("stop", "texts", "overrides"),
    [
        ("message_length", (LONG,), ["seal.rollout.max_message_tokens=16"]),
        ("trajectory_length", reference_texts(), ["data.max_response_length=200"]),
        (
            "model_length",
            reference_texts(),
            ["data.max_prompt_length=400", "actor_rollout_ref.rollout.max_model_len=500"],
        ),
        ("actor_length", reference_texts(), ["actor_rollout_ref.actor.ppo_max_token_len_per_gpu=500"]),
        ("max_steps", reference_texts(), ["seal.rollout.max_steps=3"]),
    ],
)
def test_a_budget_that_cuts_is_named_and_its_trajectory_is_not_full(url, stop, texts, overrides):
    ((output, record),) = roll_out([url], ScriptedEngine(texts), *overrides)
    assert record.stop == stop and stop in CUTS and record.infra is None
    assert record.score == 0.0 and record.labels and "pass" not in record.labels[-1:]
    assert len(record.labels) < record.turns
    assert sampled(output), "a cut trajectory is trained as far as it went"


def test_a_turn_that_was_cut_before_it_began_has_no_label(url):
    # Three calls, and the answer that ends the first turn.
    ((_, record),) = roll_out([url], ScriptedEngine(reference_texts()), "seal.rollout.max_steps=4")
    assert record.stop == "max_steps" and record.labels == ("pass",)


def test_the_recipe_decides_what_a_cut_trajectory_earns(url):
    dense = ["seal.reward.mode=capped", "seal.rollout.max_steps=4"]
    ((_, judged),) = roll_out([url], ScriptedEngine(reference_texts()), *dense)
    assert judged.score == pytest.approx(0.125)  # one of four turns, at half weight
    ((_, nothing),) = roll_out([url], ScriptedEngine(reference_texts()), *dense, "seal.reward.cut=zero")
    assert nothing.score == 0.0 and nothing.usable
    played = roll_out([url], ScriptedEngine(reference_texts()), *dense, "seal.reward.cut=exclude", trajectories=2)
    records = [record for _, record in played]
    assert all(sum(output.response_mask) == 0 for output, _ in played)
    assert all(record.excluded and record.labels == ("pass",) for record in records)
    groups = mark_groups(["a", "a"], records)
    assert not any(group.counts for group in groups) and not by_prompt(groups)


def test_validation_is_not_cut_by_the_budgets_of_training(url):
    tight = ["data.max_response_length=200", "seal.rollout.max_steps=1"]
    ((_, record),) = roll_out([url], ScriptedEngine(reference_texts()), *tight, training=False)
    assert record.stop == "completed" and record.score == 1.0


SCHEMA = {"version": 1, "cues": {"*": ["schema_required"]}}


def test_a_share_of_the_rollouts_sees_the_cues(url):
    engine = ScriptedEngine(reference_texts())
    played = roll_out([url], engine, "seal.interface.share=0.25", omega=SCHEMA, trajectories=8)
    assert [record.omega_version is not None for _, record in played] == [False] * 3 + [True] + [False] * 3 + [True]
    seen = [tuple(output.prompt_ids) for output, _ in played]
    assert len(set(seen[:3])) == 1 and seen[3] == seen[7] and len(seen[3]) > len(seen[0])


def test_a_service_that_words_the_cues_otherwise_is_refused(url, monkeypatch):
    monkeypatch.setattr(Omega, "digest", "another wording")
    omega = {"version": 1, "cues": {"*": ["schema_types"]}}
    ((_, record),) = roll_out([url], ScriptedEngine(reference_texts()), omega=omega)
    assert record.infra == "environment_refused" and "another wording" in record.infra_message


def test_validation_is_judged_by_the_verifier_alone(url):
    overrides = ["seal.reward.cut=exclude", "actor_rollout_ref.rollout.max_model_len=600"]
    ((_, record),) = roll_out([url], ScriptedEngine(reference_texts()), *overrides, training=False)
    assert record.stop == "model_length" and not record.excluded and record.score == 0


def test_a_cut_message_is_closed_in_validation_and_the_dialogue_goes_on_as_officially(url):
    """Every answer in words is cut by the message's limit; the calls are short enough."""
    wordy = [text if "tool_call" in text else LONG.removeprefix("<tool_call>") for text in reference_texts()]
    limit = max(len(tokenizer().encode(text)) for text in wordy if "tool_call" in text) + 8
    overrides = ["seal.rollout.max_message_tokens=8", f"seal.rollout.validation_message_tokens={limit}"]
    ((output, record),) = roll_out([url], ScriptedEngine(wordy), *overrides, training=False)
    assert (record.stop, record.score) == ("completed", 1.0)
    assert all(label == "pass" for label in record.labels)
    cut = [message["content"] for message in record.messages if " sort sort" in message["content"]]
    assert len(cut) == record.turns and sum(output.response_mask) == record.tokens


def test_a_stop_token_other_than_eos_ends_a_message_too(url):
    other = next(i for i in tokenizer().added_tokens_decoder if i != tokenizer().eos_token_id)
    done = [*tokenizer().encode("Done.", add_special_tokens=False), other]

    async def ended_otherwise(number):
        return TokenOutput(token_ids=done, log_probs=[-1.0] * len(done), stop_reason="completed")

    ((output, record),) = roll_out([url], ScriptedEngine((), ended_otherwise))
    assert record.stop == "completed" and record.messages[2]["content"] == "Done."
    assert sampled(output) == done * record.turns


def test_the_benchmarks_own_limit_is_no_cut_of_ours(url):
    again = '<tool_call>{"name":"ls","arguments":{}}</tool_call>'
    ((_, record),) = roll_out([url], ScriptedEngine((again,)), "seal.reward.cut=exclude", training=False)
    assert (record.stop, record.calls, record.excluded) == ("step_limit", 21, False)


def test_a_failure_of_the_engine_is_no_reward(url):
    async def dies(number):
        raise RayActorError()

    ((output, record),) = roll_out([url], ScriptedEngine((), dies))
    assert record.infra == "engine" and "message 1" in record.infra_message and not record.usable
    assert output.response_mask == [0]


def test_missing_log_probs_stop_the_run(url):
    async def without(number):
        return TokenOutput(token_ids=[1, 2], log_probs=None, stop_reason="completed")

    ((_, record),) = roll_out([url], ScriptedEngine((), without))
    assert record.infra == "token_path" and "2 tokens and 0 log-probs" in record.infra_message
