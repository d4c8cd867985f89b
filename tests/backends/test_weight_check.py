"""The engine's weights are compared with what the trainer sent, bit by bit."""

from types import SimpleNamespace

import pytest
import torch

from seal.backends.vllm_plugin import WATCHED, Digest, require_weights

NAME = f"layers.0.{WATCHED}"


def worker(weight: torch.Tensor) -> SimpleNamespace:
    """vLLM's worker around one layer that holds this weight."""
    layer = torch.nn.Module()
    layer.down_proj = torch.nn.Linear(*reversed(weight.shape), bias=False, dtype=weight.dtype)
    layer.down_proj.weight.data.copy_(weight)
    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList([layer])
    return SimpleNamespace(model_runner=SimpleNamespace(model=model))


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_one_step_of_adam_at_a_small_rate_is_noticed(precision):
    torch.manual_seed(0)
    before = torch.nn.Parameter(torch.randn(64, 256) * 0.02)
    after = before.detach() - 1e-6 * torch.randn_like(before).sign()
    sent = {NAME: Digest.of(after.to(precision))}
    require_weights(worker(after.to(precision)), sent)
    with pytest.raises(RuntimeError, match=rf"{NAME} is not the trainer's"):
        require_weights(worker(before.detach().to(precision)), sent)


def test_a_shard_and_another_precision_are_not_compared():
    weight = torch.randn(8, 4)
    sent = {NAME: Digest.of(weight), "lora.down_proj.weight": Digest(1, "torch.float32", 1)}
    require_weights(worker(weight[:, :2]), sent)
    require_weights(worker(weight.half()), sent)
    quantised = worker(weight)
    layer = quantised.model_runner.model.layers[0].down_proj  # vLLM keeps 8 bits in columns
    layer.weight = torch.nn.Parameter(weight.to(torch.float8_e4m3fn).t(), requires_grad=False)
    require_weights(quantised, sent)
