"""verl's engine on a CPU: an update that passes over rows without an advantage leaves the same weights and metrics."""

import multiprocessing
import os
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from seal.backends.sparse_update import SKIP_IDLE_ROWS, before_sampled, busy_rows, can_skip
from seal.launch.recipe import compose_recipe
from seal.paths import HOME

RECIPE = HOME / "exp" / "quickstart.yaml"
LENGTHS = ((5, 3), (4, 6), (9, 2), (3, 5), (2, 2), (6, 4))
"""Tokens of prompt and response, by row."""
PROCESS = {
    "VERL_PLATFORM": "cpu",
    "GLOO_SOCKET_IFNAME": "lo",
    "WORLD_SIZE": "1",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1",
}


class Updated(NamedTuple):
    """What an update left, how many tokens went through the model, and of how many it computed logits."""

    weights: list[np.ndarray]
    metrics: dict[str, float]
    tokens: int
    logits: int


def updates(mode, idle, place):
    """In a process of its own: the same two mini-batches by verl's own engine and by ours."""
    os.environ |= PROCESS
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}", rank=0, world_size=1)
    return updated(mode, idle, ours=False), updated(mode, idle, ours=True)


def updated(mode, idle, ours):
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.engine_workers import TrainingWorker, TrainingWorkerConfig
    from verl.workers.utils.losses import ppo_loss

    from seal.backends.cpu_engine import CPUFSDP2EngineWithLMHead

    keys = f"loss_agg_mode={mode}", "use_kl_loss=false"
    config = compose_recipe(RECIPE, [f"actor_rollout_ref.actor.{key}" for key in keys]).actor_rollout_ref
    actor = omega_conf_to_dataclass(config.actor)
    actor.model_config = omega_conf_to_dataclass(config.model)
    actor.engine.use_dynamic_bsz, actor.engine.max_token_len_per_gpu, actor.engine.use_remove_padding = True, 24, True
    worker = TrainingWorker(
        TrainingWorkerConfig(
            model_type="language_model",
            model_config=actor.model_config,
            engine_config=actor.engine,
            optimizer_config=actor.optim,
            checkpoint_config=actor.checkpoint,
        )
    )
    worker.reset()
    worker.set_loss_fn(partial(ppo_loss, config=actor))
    engine, passed, computed = worker.engine, [], []
    assert isinstance(engine, CPUFSDP2EngineWithLMHead)
    if not ours:
        for name in ("forward_backward_batch", "prepare_model_inputs", "prepare_model_outputs"):
            setattr(engine, name, getattr(super(CPUFSDP2EngineWithLMHead, engine), name))
    engine.module.register_forward_pre_hook(
        lambda module, args, inputs: passed.append(inputs["input_ids"].numel()), with_kwargs=True
    )
    engine.module.register_forward_hook(lambda module, args, output: computed.append(output.logits.shape[1]))
    batch = rows(idle)
    facts = {"mini_batch_size": 3, "global_batch_size": 3, "temperature": 1.0, "calculate_entropy": False}
    tu.assign_non_tensor(batch, dataloader_kwargs={"shuffle": False}, **facts, **{SKIP_IDLE_ROWS: True})
    metrics = tu.get(worker.train_mini_batch(batch), "metrics")
    weights = [each.full_tensor().detach().numpy().copy() for each in engine.module.parameters()]
    figures = {name: float(np.mean(metrics[name])) for name in ("grad_norm", "actor/pg_loss")}
    return Updated(weights, figures, sum(passed), sum(computed))


def rows(idle):
    def nested(values):
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)

    def filled(value):
        return nested(
            [torch.full((n,), value(row) if callable(value) else value) for row, (_, n) in enumerate(LENGTHS)]
        )

    draws = torch.Generator().manual_seed(0)
    totals = [sum(each) for each in LENGTHS]
    # As after a result of a tool: the second token of a response is not the policy's.
    mask = nested([torch.tensor([place != 1 for place in range(n)]).long() for _, n in LENGTHS])
    return TensorDict(
        {
            "input_ids": nested([torch.randint(10, 500, (n,), generator=draws) for n in totals]),
            "position_ids": nested([torch.arange(n) for n in totals]),
            "loss_mask": mask,
            "prompts": nested([torch.ones(p, dtype=torch.long) for p, _ in LENGTHS]),
            "responses": filled(1),
            "response_mask": mask,
            "old_log_probs": filled(-8.0),
            "advantages": filled(lambda row: 0.0 if row in idle else 1.0 + row),
        },
        batch_size=len(LENGTHS),
    )


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_an_update_leaves_the_weights_that_verls_own_engine_leaves(mode, tmp_path):
    idle = (0, 2, 3, 4, 5)  # the second mini-batch has no advantage at all
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        verls, ours = pool.apply(updates, (mode, idle, tmp_path / "meeting"))
    assert verls.tokens == verls.logits == sum(map(sum, LENGTHS))
    assert ours.tokens == sum(LENGTHS[1]) + sum(LENGTHS[3]) and ours.logits == LENGTHS[1][1] - 1 + LENGTHS[3][1] - 1
    for found, expected in zip(ours.weights, verls.weights, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    assert ours.metrics == pytest.approx(verls.metrics, rel=1e-4) and verls.metrics["grad_norm"] > 0


@settings(deadline=None)
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


@pytest.mark.parametrize(
    ("key", "value", "skips"),
    [
        ("ppo_epochs", 2, True),
        ("entropy_coeff", 0.01, False),
        ("use_kl_loss", True, False),
        ("use_dynamic_bsz", False, False),
    ],
)
def test_other_terms_of_the_loss_keep_every_row(key, value, skips):
    actor = compose_recipe(RECIPE, ["actor_rollout_ref.actor.use_kl_loss=false"]).actor_rollout_ref.actor
    actor[key] = value
    assert can_skip(actor) is skips
