"""The network: transformers' own Qwen2, small, with an initialisation that helps copying."""

import math
from typing import NamedTuple

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM


class Size(NamedTuple):
    """Shape of the network; hidden / heads is the head size (at least 32 for vLLM on the CPU)."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int


SIZES = {
    "tiny": Size(hidden=64, layers=2, heads=2, kv_heads=1, feed_forward=128),
    "small": Size(hidden=192, layers=4, heads=6, kv_heads=2, feed_forward=512),
    "100m": Size(hidden=768, layers=16, heads=24, kv_heads=8, feed_forward=2048),
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
    """Variance-preserving weights, with "mimetic" attention.

    Queries and keys of a group start as the same projection (a token attends to
    its like), and output is the transpose of value (the head passes on what it
    attends to): a copying head from the first step on, which halves the tokens
    that small models need before they copy values.
    """
    config = model.config
    head = config.hidden_size // config.num_attention_heads
    group = config.num_attention_heads // config.num_key_value_heads

    def gauss(weight: torch.Tensor, std: float) -> None:
        weight.copy_(torch.randn(weight.shape, generator=generator) * std)

    def projection() -> torch.Tensor:
        square = torch.randn(config.hidden_size, head, generator=generator)
        return torch.linalg.qr(square)[0].T

    residual = 1 / math.sqrt(2 * config.num_hidden_layers)
    gauss(model.model.embed_tokens.weight, 1 / math.sqrt(config.hidden_size))
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj):
            gauss(linear.weight, 1 / math.sqrt(linear.in_features))
        for linear in (attention.o_proj, mlp.down_proj):
            gauss(linear.weight, residual / math.sqrt(linear.in_features))
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
            linear.bias.zero_()
        for key in range(config.num_key_value_heads):
            like, value = projection(), projection()
            rows = slice(key * head, (key + 1) * head)
            attention.k_proj.weight[rows] = like
            attention.v_proj.weight[rows] = value
            for query in range(key * group, (key + 1) * group):
                rows = slice(query * head, (query + 1) * head)
                attention.q_proj.weight[rows] = like + 0.3 * attention.q_proj.weight[rows]
                attention.o_proj.weight[:, rows] = 0.4 * value.T + 0.5 * attention.o_proj.weight[:, rows]
