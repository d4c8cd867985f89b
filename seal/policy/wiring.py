"""Start weights into which a copying circuit is wired.

A network of a few million parameters takes millions of tokens to find out how to copy what
stood in its context (induction heads, Olsson et al. 2022), and learns no task before it
can. The circuit needs no training: it can be written down. The first channels hold what a
token is. In layer 0, biases of queries and keys whose rotary phases meet at a distance
of one token read the token before and write it beside. In the layers after it, a query
asks with the current token, a key answers with the token before, and the head
copies what followed last time. Everything else starts small and random.
"""

import math

import torch
from transformers import Qwen2ForCausalLM

ROPE_THETA = 1e6
"""With the usual 1e4 the slow rotary pairs turn too far for tokens to match at a distance."""

_EMBEDDING = 0.5
"""Size of the embeddings: large enough that the first steps of training do not overwrite the circuit."""
_NOISE = 0.05
_FAST_PAIRS, _FAST_BIAS = 4, 6.5
_SLOW, _MATCH, _MISMATCH = 0.035, 2.6, 0.3
_COPY_GAIN = 10.0
_LOGIT_GAIN = 12.0
_FEED_FORWARD, _LATER_ATTENTION = 0.3, 0.2
_COPYING_LAYERS = (1, 2)


@torch.no_grad()
def wire_copying(model: Qwen2ForCausalLM, generator: torch.Generator) -> None:
    """Write the circuit into a freshly initialised network.

    It needs two layers, two query heads per key head, and key heads that fill at most half of the channels;
    ValueError otherwise.
    """
    config = model.config
    head = config.hidden_size // config.num_attention_heads
    group = config.num_attention_heads // config.num_key_value_heads
    width = config.num_key_value_heads * head
    if config.num_hidden_layers < 2 or group < 2 or 2 * width > config.hidden_size:
        raise ValueError(
            "A copying circuit needs two layers, two query heads per key head, and half of the channels free."
        )
    frequencies = 1 / config.rope_parameters["rope_theta"] ** (torch.arange(0, head, 2) / head)

    embedding = model.model.embed_tokens.weight
    embedding.mul_(0.02 * _EMBEDDING / embedding.std())
    embedding[:, :width] = torch.randn(embedding.shape[0], width, generator=generator) * _EMBEDDING
    model.model.norm.weight.fill_(_LOGIT_GAIN / (width * math.sqrt(2) * _EMBEDDING))
    for layer in model.model.layers:
        layer.mlp.down_proj.weight.mul_(_FEED_FORWARD)

    _wire_previous_token(model.model.layers[0].self_attn, config.num_key_value_heads, group, head, frequencies)
    for number, layer in enumerate(model.model.layers[1:], 1):
        if number in _COPYING_LAYERS:
            _wire_copy(layer.self_attn, config.num_key_value_heads, group, head, frequencies)
        else:
            layer.self_attn.o_proj.weight.mul_(_LATER_ATTENTION)


def _wire_previous_token(
    attention: torch.nn.Module, key_heads: int, group: int, head: int, frequencies: torch.Tensor
) -> None:
    """The n-th head of each group attends n tokens back; the first writes what it finds beside the token."""
    half, width = head // 2, key_heads * head
    bias = _FAST_BIAS * (torch.arange(half) < _FAST_PAIRS).float()
    for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
        linear.weight.mul_(_NOISE)
        linear.bias.zero_()
    attention.o_proj.weight.mul_(_NOISE)
    for key in range(key_heads):
        own = slice(key * head, (key + 1) * head)
        attention.k_proj.bias[key * head : key * head + half] = bias
        attention.v_proj.weight[own, own] += torch.eye(head)
        for member in range(group):
            start, back = (key * group + member) * head, member + 1
            attention.q_proj.bias[start : start + half] = bias * torch.cos(frequencies * back)
            attention.q_proj.bias[start + half : start + head] = -bias * torch.sin(frequencies * back)
        first = slice(key * group * head, key * group * head + head)
        beside = slice(width + key * head, width + (key + 1) * head)
        attention.o_proj.weight[beside, first] = torch.eye(head) * _EMBEDDING / math.sqrt(2)


def _wire_copy(attention: torch.nn.Module, key_heads: int, group: int, head: int, frequencies: torch.Tensor) -> None:
    """Two heads of each group find where the current token stood before, and copy what followed."""
    width = key_heads * head
    match = torch.diag(torch.where(frequencies < _SLOW, _MATCH, _MISMATCH).repeat(2))
    for key in range(key_heads):
        own = slice(key * head, (key + 1) * head)
        before = slice(width + key * head, width + (key + 1) * head)
        attention.k_proj.weight[own] *= _NOISE
        attention.k_proj.weight[own, before] += match
        attention.v_proj.weight[own] *= _NOISE
        attention.v_proj.weight[own, own] += torch.eye(head)
        for member in range(2):
            rows = slice((key * group + member) * head, (key * group + member + 1) * head)
            attention.q_proj.weight[rows] *= _NOISE
            attention.q_proj.weight[rows, own] += match
            attention.o_proj.weight[:, rows] *= _NOISE
            attention.o_proj.weight[own, rows] += torch.eye(head) * _COPY_GAIN * _EMBEDDING / 2
