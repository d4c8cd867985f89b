"""Grows a small Qwen2 policy to a size that occupies a GPU, without changing its answers.

The committed policy has two million parameters; a random network of 100M would earn no reward, so no gradient would
move it and a stale weight sync would go unnoticed. So the small network is embedded in a larger one: its channels,
heads and layers come first, the added parts write nothing at first (zero output projections), and the norms' weights
compensate for the wider mean. In fp32 both give the same logits; training uses all of the larger network.
"""

import math
import shutil
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

OWN = ("config.json", "model.safetensors", "made.json")
"""Files of a policy's folder that do not belong to its tokenizer."""


class Size(NamedTuple):
    """Shape of the network; hidden / heads is the head size."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int


LARGE = Size(hidden=768, layers=16, heads=24, kv_heads=12, feed_forward=2048)
"""102M parameters, with heads of the committed policy's size."""


def grow(source: Path, out: Path, size: Size = LARGE) -> int:
    """Write the policy of `source`, grown to `size`, to `out`; return its number of parameters.

    Raises ValueError if `size` cannot hold it: fewer channels, heads or layers,
    another head size, or another number of query heads per key head.
    """
    large = grown(AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32), size)
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
    depth, heads = config.num_hidden_layers, (config.num_attention_heads, config.num_key_value_heads)
    _check(Size(config.hidden_size, depth, *heads, config.intermediate_size), size)
    large = _new(config, size)
    large.generation_config = small.generation_config
    ratio = config.hidden_size / size.hidden
    # The mean is over more channels, and the added ones are zero: exact if the epsilon is scaled accordingly.
    large.config.rms_norm_eps = config.rms_norm_eps * ratio
    for module in large.modules():
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon = large.config.rms_norm_eps
    theirs = dict(small.named_parameters())
    for name, weight in large.named_parameters():
        if any(part in name for part in ("o_proj", "down_proj", "embed_tokens")):
            weight.zero_()
        if name in theirs:
            factor = math.sqrt(ratio) if "norm" in name else 1.0
            weight[tuple(slice(n) for n in theirs[name].shape)] = factor * theirs[name]
    return large


def _new(config: Qwen2Config, size: Size) -> Qwen2ForCausalLM:
    """A network of `size` with random weights, the same ones each time, and otherwise the same configuration."""
    own = {name: value for name, value in config.to_dict().items() if name not in ("layer_types", "head_dim")}
    own |= {
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "max_window_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "intermediate_size": size.feed_forward,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Qwen2ForCausalLM(Qwen2Config(**own))


def _check(old: Size, new: Size) -> None:
    if old.hidden // old.heads != new.hidden // new.heads or old.heads // old.kv_heads != new.heads // new.kv_heads:
        raise ValueError(f"{new} has other heads than {old}: keep hidden / heads and heads / kv_heads.")
    if any(larger < smaller for larger, smaller in zip(new, old, strict=True)):
        raise ValueError(f"{new} is smaller than {old} in some dimension: a policy can only grow.")
