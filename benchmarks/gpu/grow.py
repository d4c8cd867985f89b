"""Grows a small Qwen2 policy to a size that a GPU notices, without changing what it says.

The committed policy has two million parameters; a network of 100M that was
made at random would earn no reward, so that no gradient would move it and a
stale weight sync could not be seen. So the small one is embedded in a larger:
its channels, heads and layers come first, what is added starts by writing
nothing (zero output projections), and the norms' weights make up for the wider
mean. In fp32 both give the same logits; training uses all of the larger one.
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen2ForCausalLM

from seal.policy.model import Size, new_model

LARGE = Size(hidden=768, layers=16, heads=24, kv_heads=8, feed_forward=2048)
"""102M parameters with heads of 32, the head size of the committed policy."""
OWN = ("config.json", "model.safetensors", "made.json")
"""Files of a policy's folder that are not its tokenizer's."""


def grow(source: Path, out: Path, size: Size = LARGE) -> int:
    """Write the policy of `source`, grown to `size`, to `out`; returns its number of parameters.

    Raises ValueError where `size` cannot hold it: fewer channels, heads or
    layers, another head size, or another number of query heads to a key head.
    """
    small = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    large = grown(small, size)
    out.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.name not in OWN:
            shutil.copy(file, out / file.name)
    large.save_pretrained(out)
    return large.num_parameters()


@torch.no_grad()
def grown(small: Qwen2ForCausalLM, size: Size) -> Qwen2ForCausalLM:
    """A network of `size` that computes what `small` does."""
    config = small.config
    had = Size(
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        feed_forward=config.intermediate_size,
    )
    _check(had, size)
    large = new_model(
        size, config.vocab_size, config.max_position_embeddings, config.eos_token_id, config.pad_token_id, seed=0
    )
    large.generation_config = small.generation_config
    large.config.rope_parameters = config.rope_parameters
    ratio = had.hidden / size.hidden
    # A mean over more channels, the added ones being zero: exact with its epsilon scaled alike.
    large.config.rms_norm_eps = config.rms_norm_eps * ratio
    for module in large.modules():
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon = large.config.rms_norm_eps
    theirs = dict(small.named_parameters())
    for name, weight in large.named_parameters():
        writes = any(part in name for part in ("o_proj", "down_proj", "embed_tokens"))
        if writes:
            weight.zero_()
        if name in theirs:
            factor = math.sqrt(ratio) if "norm" in name else 1.0
            weight[tuple(slice(n) for n in theirs[name].shape)] = factor * theirs[name]
    return large


def _check(had: Size, size: Size) -> None:
    if had.hidden // had.heads != size.hidden // size.heads or had.heads // had.kv_heads != size.heads // size.kv_heads:
        raise ValueError(f"{size} has other heads than {had}: keep hidden / heads and heads / kv_heads.")
    names = ("hidden", "layers", "heads", "kv_heads", "feed_forward")
    if any(getattr(size, name) < getattr(had, name) for name in names):
        raise ValueError(f"{size} is smaller than {had} in some way: a policy can only grow.")
