"""verl's own FSDP2 worker with the settings of the CUDA recipes, as far as two gloo ranks on a CPU carry them."""

import multiprocessing
import os
from typing import NamedTuple

import numpy as np
import pytest
import torch

from seal.launch.recipe import read_recipe
from seal.system.paths import HOME
from tests.backends.test_cpu_engine import Case, rows
from tests.support import training
from tests.support.device import WITHOUT_FLASH
from tests.support.training import PROCESS, scored, weights

pytestmark = pytest.mark.slow

ALL_BUSY = Case("token-mean", 1.0, idle=((),))
# With the usual 1e-8 Adam turns the rounding of a gradient near zero into a share of the learning rate.
EPSILON = "++actor_rollout_ref.actor.optim.override_optimizer_config.eps=1e-4"
SHARDING = "actor_rollout_ref.actor.fsdp_config"
SMALL = (
    f"actor_rollout_ref.model.path={HOME / 'data' / 'quickstart_policy'}",
    "actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.actor.optim.lr=1e-3",
    f"+{SHARDING}.mixed_precision={{param_dtype: fp32, reduce_dtype: fp32}}",
)


class Updated(NamedTuple):
    """Log-probs and entropy of the rows before an update, the gradient's norm, the weights afterwards, and after the
    same update of a worker that went on from the first one's checkpoint."""

    log_probs: np.ndarray
    entropy: np.ndarray
    grad_norm: float
    weights: list[np.ndarray]
    resumed: list[np.ndarray]
    expected: list[np.ndarray]


def updated(recipe, overrides, rank, place):
    """In a process of its own: two updates, and the second again from a checkpoint."""
    os.environ |= PROCESS | {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": "1", "OMP_NUM_THREADS": "1"}
    torch.distributed.init_process_group("gloo", init_method=f"file://{place}.meeting", rank=rank, world_size=2)
    config = read_recipe(HOME / "exp" / f"{recipe}.yaml", [*SMALL, *overrides]).config.actor_rollout_ref
    first = worker_of(config)
    log_probs, entropy = (each.numpy() for each in scored(first, rows(ALL_BUSY, 0)).values())
    norm = step(first)
    after_one = weights(first)
    first.save_checkpoint(f"{place}.checkpoint", global_step=1)
    step(first)
    second = worker_of(config)
    second.load_checkpoint(f"{place}.checkpoint")
    step(second)
    return Updated(log_probs, entropy, norm, after_one, weights(second), weights(first))


def worker_of(config):
    from torch.distributed.fsdp import CPUOffloadPolicy
    from verl.workers.engine.fsdp import transformer_impl

    from seal.backends import packed_attention  # noqa: F401
    from seal.backends.cpu_engine import CPUFSDP2EngineWithLMHead

    # verl's own methods; memory cannot be pinned without an accelerator.
    for name in ("forward_backward_batch", "prepare_model_inputs", "prepare_model_outputs", "_build_fsdp_module"):
        setattr(CPUFSDP2EngineWithLMHead, name, getattr(transformer_impl.FSDPEngineWithLMHead, name))
    transformer_impl.CPUOffloadPolicy = lambda **_: CPUOffloadPolicy(pin_memory=False)
    return training.worker_of(config, packed=24)


def step(worker):
    return training.stepped(worker, rows(ALL_BUSY, 0), 12)["grad_norm"]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The updates of rank 0, by recipe and overrides; each pair of processes plays once."""
    done = {}

    def play(recipe, *overrides):
        if (recipe, overrides) not in done:
            place = tmp_path_factory.mktemp("ranks") / "run"
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                begun = [pool.apply_async(updated, (recipe, overrides, rank, str(place))) for rank in range(2)]
                done[recipe, overrides], _ = (each.get(timeout=500) for each in begun)
        return done[recipe, overrides]

    return play


def same(found, expected, **tolerance):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, **tolerance)


def test_gradients_added_up_without_communication_give_the_same_update_and_resume(played):
    """Deferred sync, fused Adam and the offload policy against none of them."""
    plain, one_gpu = played("SEAL", EPSILON), played("SEAL_1gpu", EPSILON)
    assert one_gpu.grad_norm == pytest.approx(plain.grad_norm, rel=1e-4) and plain.grad_norm > 0
    same(one_gpu.weights, plain.weights, rtol=1e-4, atol=1e-6)
    for each in (plain, one_gpu):
        same(each.resumed, each.expected, rtol=0, atol=0)
        assert any((one != other).any() for one, other in zip(each.weights, each.expected, strict=True))


def test_adapters_alone_are_trained_and_resume(played):
    lora = played("SEAL_lora")
    same(lora.resumed, lora.expected, rtol=0, atol=0)
    changed = sum(bool((one != other).any()) for one, other in zip(lora.weights, lora.expected, strict=True))
    assert 0 < changed < len(lora.weights) and lora.grad_norm > 0


def test_without_flash_attn_log_probs_are_the_same(played):
    """The launcher's settings where flash-attn is missing (`preflight.choose_attention`)."""
    plain, fused = played("SEAL", EPSILON), played("SEAL", EPSILON, *WITHOUT_FLASH)
    np.testing.assert_allclose(fused.log_probs, plain.log_probs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fused.entropy, plain.entropy, rtol=1e-4, atol=1e-4)
    assert fused.grad_norm == pytest.approx(plain.grad_norm, rel=1e-3)
    same(fused.weights, plain.weights, rtol=1e-3, atol=1e-5)
