"""The network: transformers' own Qwen2, small, with an initialisation that helps copying."""

import math
from typing import NamedTuple

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from shelf.testbed.policy.wiring import ROPE_THETA, wire_circuits


class Size(NamedTuple):
    """Shape of the network; hidden / heads is the head size (at least 32 for vLLM on the CPU)."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int


SIZES = {
    "tiny": Size(hidden=64, layers=2, heads=2, kv_heads=1, feed_forward=128),
    "small": Size(hidden=192, layers=4, heads=6, kv_heads=3, feed_forward=512),
    "100m": Size(hidden=768, layers=16, heads=24, kv_heads=12, feed_forward=2048),
}
"""By name: `tiny` for tests, `small` for the CPU (2.0M parameters), `100m` for a GPU (102M). All have heads of 32, so
that `grow` can make a larger one of a smaller one."""


def new_model(size: Size, vocab_size: int, context: int, end_id: int, pad_id: int, seed: int) -> Qwen2ForCausalLM:
    """A freshly initialised Qwen2 in fp32 with tied embeddings, deterministic from the seed."""
    config = Qwen2Config(
        vocab_size=vocab_size,
        hidden_size=size.hidden,
        intermediate_size=size.feed_forward,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        max_position_embeddings=context,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        tie_word_embeddings=True,
        eos_token_id=end_id,
        pad_token_id=pad_id,
        bos_token_id=None,
        dtype="float32",
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = end_id
    model.generation_config.pad_token_id = pad_id
    model.generation_config.bos_token_id = None
    _initialise(model, torch.Generator().manual_seed(seed))
    return model


@torch.no_grad()
def _initialise(model: Qwen2ForCausalLM, generator: torch.Generator) -> None:
    """Variance-preserving weights, with the circuits for copying and reading written into them."""
    residual = 1 / math.sqrt(2 * model.config.num_hidden_layers)

    def gauss(weight: torch.Tensor, std: float) -> None:
        weight.copy_(torch.randn(weight.shape, generator=generator) * std)

    gauss(model.model.embed_tokens.weight, 1 / math.sqrt(model.config.hidden_size))
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj):
            gauss(linear.weight, 1 / math.sqrt(linear.in_features))
        for linear in (attention.o_proj, mlp.down_proj):
            gauss(linear.weight, residual / math.sqrt(linear.in_features))
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
            linear.bias.zero_()
    wire_circuits(model, generator)
