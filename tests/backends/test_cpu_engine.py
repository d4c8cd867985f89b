"""verl's engine on a CPU: an update that passes over rows without an advantage leaves the same weights and metrics."""

import multiprocessing
import os
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from seal.backends.cpu_rows import SHARE_PROMPTS, SKIP_IDLE_ROWS, before_sampled, busy_rows, can_skip, filled_up
from seal.launch.recipe import read_recipe
from seal.system.paths import HOME
from tests.support.training import PROCESS, batch_of, scored, stepped, weights, worker_of

RECIPE = HOME / "exp" / "quickstart.yaml"
LENGTHS = ((5, 3), (4, 6), (9, 2), (3, 5), (2, 2), (6, 4))
"""Tokens of prompt and response, by row."""
GROUPS = ((6, 3), (6, 6), (4, 2), (6, 5), (4, 2), (4, 4))
"""The same of two prompts."""


class Case(NamedTuple):
    """A recipe's settings, and the rows without an advantage that each rank gets."""

    mode: str
    temperature: float
    idle: tuple[tuple[int, ...], ...]
    lengths: tuple[tuple[int, int], ...] = LENGTHS


class Updated(NamedTuple):
    """The results of an update of two mini-batches, of scoring the rows before it, and the work of the update.

    log_probs: of the sampled tokens. tokens, logits: how many tokens went through the model, and had logits.
    """

    weights: list[np.ndarray]
    metrics: dict[str, float]
    log_probs: np.ndarray
    tokens: int
    logits: int


def updates(case, rank, place):
    """In the process of a rank: the same rows by verl's own engine and by ours."""
    os.environ |= PROCESS | {"RANK": str(rank), "WORLD_SIZE": str(len(case.idle)), "MASTER_PORT": "1"}
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=len(case.idle))
    try:
        return updated(case, rank, ours=False), updated(case, rank, ours=True)
    finally:
        torch.distributed.destroy_process_group()


def updated(case, rank, ours):
    from seal.backends.cpu_engine import CPUFSDP2EngineWithLMHead

    keys = f"loss_agg_mode={case.mode}", "use_kl_loss=false"
    config = read_recipe(RECIPE, [f"actor_rollout_ref.actor.{key}" for key in keys]).config.actor_rollout_ref
    worker = worker_of(config, packed=24)
    engine, passed, computed = worker.engine, [], []
    assert isinstance(engine, CPUFSDP2EngineWithLMHead)
    if not ours:
        for name in ("forward_backward_batch", "prepare_model_inputs", "prepare_model_outputs"):
            setattr(engine, name, getattr(super(CPUFSDP2EngineWithLMHead, engine), name))
    facts = {"temperature": case.temperature, SHARE_PROMPTS: case.lengths == GROUPS}
    found = scored(worker, rows(case, rank), **facts)
    engine.module.register_forward_pre_hook(
        lambda module, args, inputs: passed.append(inputs["input_ids"].numel()), with_kwargs=True
    )
    engine.module.register_forward_hook(lambda module, args, output: computed.append(output.logits.shape[1]))
    metrics = stepped(worker, rows(case, rank), 3 * len(case.idle), **facts, **{SKIP_IDLE_ROWS: True})
    figures = {name: metrics[name] for name in ("grad_norm", "actor/pg_loss")}
    log_probs = np.concatenate([found[name].numpy() for name in ("log_probs", "entropy")])
    return Updated(weights(worker), figures, log_probs, sum(passed), sum(computed))


def rows(case, rank):
    idle, lengths = case.idle[rank], case.lengths
    draws = torch.Generator().manual_seed(0)
    ids = [torch.randint(10, 500, (sum(each),), generator=draws) for each in lengths]
    if lengths == GROUPS:
        ids = [torch.cat((torch.full((p,), p), each[p:])) for each, (p, _) in zip(ids, lengths, strict=True)]
    # As after a result of a tool: the second token of a response is not the policy's.
    masks = [torch.tensor([place != 1 for place in range(n)]).long() for _, n in lengths]
    return batch_of(ids, masks, [0.0 if row in idle else 1.0 + row for row in range(len(lengths))])


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Plays a case: (verl's, ours) of each rank. The processes stay: they import verl for longer than they play."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:

        def play(case):
            place = tmp_path_factory.mktemp("meeting") / "file"
            begun = [pool.apply_async(updates, (case, rank, place)) for rank in range(len(case.idle))]
            return [each.get(timeout=300) for each in begun]

        yield play


def check_equal(verls, ours):
    np.testing.assert_allclose(ours.log_probs, verls.log_probs, rtol=1e-4, atol=1e-4)
    for found, expected in zip(ours.weights, verls.weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    assert ours.metrics == pytest.approx(verls.metrics, rel=1e-4) and verls.metrics["grad_norm"] > 0


def test_an_update_leaves_the_weights_that_verls_own_engine_leaves(played):
    # The second mini-batch has no advantage at all.
    ((verls, ours),) = played(Case("seq-mean-token-mean", 0.7, ((0, 2, 3, 4, 5),)))
    assert verls.tokens == verls.logits == sum(map(sum, LENGTHS))
    assert ours.tokens == sum(LENGTHS[1]) + sum(LENGTHS[3]) and ours.logits == LENGTHS[1][1] - 1 + LENGTHS[3][1] - 1
    check_equal(verls, ours)


def test_a_prompt_that_rows_share_is_computed_once(played):
    ((verls, ours),) = played(Case("token-mean", 0.7, ((2,),), GROUPS))
    # At most 24 tokens in a micro-batch; row 2 is idle, and rows 0 to 2 are a mini-batch of their own.
    assert verls.tokens == sum(map(sum, GROUPS)) and ours.tokens == (6 + 3 + 6) + (6 + 5) + (4 + 2 + 4)
    check_equal(verls, ours)


def test_ranks_with_different_numbers_of_idle_rows_stay_together(played):
    (verls, ours), (_, others) = played(Case("token-mean", 1.0, ((3, 4), tuple(range(6)))))
    assert ours.tokens == sum(map(sum, LENGTHS[:3])) + sum(LENGTHS[5])
    assert others.tokens == sum(map(sum, LENGTHS[:3])) + sum(LENGTHS[3])
    check_equal(verls, ours)


@given(st.lists(st.tuples(st.integers(1, 5), st.lists(st.booleans(), min_size=1, max_size=6)), min_size=1, max_size=4))
def test_logits_are_computed_where_verl_looks_for_a_sampled_token(dialogues):
    from verl.workers.utils.padding import no_padding_2_padding

    prompts, masks = zip(*dialogues, strict=True)
    nested = partial(torch.nested.as_nested_tensor, layout=torch.jagged)
    ids = nested([torch.zeros(prompt + len(mask)) for prompt, mask in dialogues])
    responses = nested([torch.tensor(mask).long() for mask in masks])
    batch = {"prompts": nested([torch.zeros(prompt) for prompt in prompts]), "responses": responses}
    places = no_padding_2_padding(torch.arange(len(ids.values())), TensorDict(batch, batch_size=len(dialogues)))
    expected = [int(place) for row, mask in zip(places, masks, strict=True) for place in row[: len(mask)][list(mask)]]
    assert before_sampled(ids.offsets(), responses).tolist() == (expected or [prompts[0] - 1])


def test_a_row_is_busy_if_one_of_its_tokens_has_an_advantage():
    advantages = [torch.zeros(3), torch.tensor([0.0, -0.5]), torch.zeros(1), torch.ones(4)]
    assert busy_rows(torch.nested.as_nested_tensor(advantages, layout=torch.jagged)) == [1, 3]
    assert busy_rows(torch.zeros(2, 3)) == [0]


def test_the_first_others_fill_up_what_is_chosen():
    assert filled_up([1, 4], rows=6, number=4) == [0, 1, 2, 4]
    assert filled_up([1, 4], rows=6, number=2) == [1, 4]


ACTOR = "actor_rollout_ref.actor"


@pytest.mark.parametrize(
    "override",
    [
        f"{ACTOR}.entropy_coeff=0.01",
        f"{ACTOR}.calculate_entropy=true",
        f"{ACTOR}.use_kl_loss=true",
        f"{ACTOR}.use_dynamic_bsz=false",
        f"{ACTOR}.policy_loss.loss_mode=kl_cov",
        f"{ACTOR}.loss_agg_mode=seq-mean-token-sum-norm",
        "distillation.enabled=true",
    ],
)
def test_other_terms_and_forms_of_the_loss_keep_every_row(override):
    alone = [f"{ACTOR}.use_kl_loss=false", f"{ACTOR}.ppo_epochs=2"]
    assert can_skip(read_recipe(RECIPE, alone).config) and not can_skip(read_recipe(RECIPE, [*alone, override]).config)
