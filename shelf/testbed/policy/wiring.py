"""Start weights into which circuits for copying and for reading are wired.

A network of a few million parameters takes millions of tokens to find out how to copy what
stood in its context (induction heads, Olsson et al. 2022), and learns no task before it
can. The circuits need no training: they can be written down.

The first channels hold what a token is. In layer 0, biases of queries and keys whose rotary
phases meet at a distance of one token read the token before and write it beside; one group
of heads reads the token two back instead. In layers 1 and 2 some heads copy and some read:

- copying: a query asks with the current token, a key answers with the token before it, and
  the head repeats what followed last time;
- reading: a query asks with the token before, a key answers with the token two back, and the
  head repeats what came second after it last time. So the name of an argument follows the
  tool's, in a schema cue ("cp source") and in a call, with one other token between.

Everything else starts small and random.
"""

import math
from typing import NamedTuple

import torch
from transformers import Qwen2ForCausalLM

ROPE_THETA = 1e6
"""With the usual 1e4 the slow rotary pairs turn too far for tokens to match at a distance."""

_EMBEDDING = 0.5
"""Size of the embeddings: large enough that the first steps of training do not overwrite the circuits."""
_NOISE = 0.05
_FAST_PAIRS, _FAST_BIAS = 4, 6.5
_SLOW, _MISMATCH = 0.035, 0.3
_COPY_MATCH, _READ_MATCH, _SECOND_LAYER_MATCH = 2.6, 3.0, 4.0
"""Sharpness of attention. Layer 2 needs more: what layer 1 has copied makes the rest of its input smaller."""
_COPY_GAIN, _READ_GAIN = 10.0, 16.0
_LOGIT_GAIN = 12.0
_FEED_FORWARD, _LATER_ATTENTION = 0.3, 0.2


class _Room(NamedTuple):
    """Where things are: channels of the residual stream, and rows of the projections, by key head."""

    key_heads: int
    group: int
    head: int
    frequencies: torch.Tensor

    def own(self, key: int) -> slice:
        """A part of what a token is; also the rows of a key head."""
        return slice(key * self.head, (key + 1) * self.head)

    def beside(self, key: int) -> slice:
        """The same part of the token before; of the last key head: the last but one's part of the token two back."""
        return self.own(self.key_heads + key)

    def rows(self, key: int, member: int) -> slice:
        """The rows of a query head."""
        return self.own(key * self.group + member)

    @property
    def reads(self) -> bool:
        """Whether there are key heads enough to give one of them to the token two back."""
        return self.key_heads > 2


class _Match(NamedTuple):
    """What a key head does: the channels of query, key and value, the sharpness, and the size of what it writes."""

    asked: slice
    answering: slice
    value: slice
    sharpness: float
    gain: float


@torch.no_grad()
def wire_circuits(model: Qwen2ForCausalLM, generator: torch.Generator) -> None:
    """Write the circuits into a freshly initialised network; reading only where it has three key heads.

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

    room = _Room(config.num_key_value_heads, group, head, frequencies)
    first, second, *later = (layer.self_attn for layer in model.model.layers)
    _wire_earlier_tokens(first, room)
    last = room.key_heads - 1
    heads = range(room.key_heads)
    _wire_matches(
        second, room, [_read(room, key, 1) if room.reads and key == last else _copy(room, key, 1) for key in heads]
    )
    if later:
        third, *later = later
        _wire_matches(
            third,
            room,
            [_copy(room, key, 2) if not room.reads or key == last else _read(room, key, 2) for key in heads],
        )
    for attention in later:
        attention.o_proj.weight.mul_(_LATER_ATTENTION)


def _copy(room: _Room, key: int, layer: int) -> _Match:
    # The channels beside the last key head's hold the token two back: it matches with another part.
    part = 0 if room.reads and key == room.key_heads - 1 else key
    sharpness = _SECOND_LAYER_MATCH if layer == 2 and room.reads else _COPY_MATCH
    return _Match(room.own(part), room.beside(part), room.own(key), sharpness, _COPY_GAIN)


def _read(room: _Room, key: int, layer: int) -> _Match:
    sharpness = _SECOND_LAYER_MATCH if layer == 2 else _READ_MATCH
    asked, answering = room.beside(room.key_heads - 2), room.beside(room.key_heads - 1)
    return _Match(asked, answering, room.own(key), sharpness, _READ_GAIN)


def _wire_earlier_tokens(attention: torch.nn.Module, room: _Room) -> None:
    """The n-th head of each group attends n tokens back; one of each group writes what it finds beside the token."""
    half = room.head // 2
    bias = _FAST_BIAS * (torch.arange(half) < _FAST_PAIRS).float()
    for linear in (attention.q_proj, attention.k_proj, attention.v_proj):
        linear.weight.mul_(_NOISE)
        linear.bias.zero_()
    attention.o_proj.weight.mul_(_NOISE)
    for key in range(room.key_heads):
        two_back = room.reads and key == room.key_heads - 1
        attention.k_proj.bias[room.own(key)][:half] = bias
        attention.v_proj.weight[room.own(key), room.own(key - 1 if two_back else key)] += torch.eye(room.head)
        for member in range(room.group):
            turned = room.frequencies * (member + 1)
            attention.q_proj.bias[room.rows(key, member)] = torch.cat([bias * turned.cos(), -bias * turned.sin()])
        written = torch.eye(room.head) * _EMBEDDING / math.sqrt(2)
        attention.o_proj.weight[room.beside(key), room.rows(key, int(two_back))] = written


def _wire_matches(attention: torch.nn.Module, room: _Room, matches: list[_Match]) -> None:
    """The first two heads of each group find the keys that hold what their query holds, and repeat the values there."""
    for linear in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj):
        linear.weight.mul_(_NOISE)
    slow = room.frequencies < _SLOW
    for key, match in enumerate(matches):
        same = torch.diag(torch.where(slow, match.sharpness, _MISMATCH).repeat(2))
        attention.k_proj.weight[room.own(key), match.answering] += same
        attention.v_proj.weight[room.own(key), match.value] += torch.eye(room.head)
        for member in range(2):
            rows = room.rows(key, member)
            attention.q_proj.weight[rows, match.asked] += same
            attention.o_proj.weight[match.value, rows] += torch.eye(room.head) * match.gain * _EMBEDDING / 2
