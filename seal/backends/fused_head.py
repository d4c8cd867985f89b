"""Fused log-probs with a head of its own: FSDP2 must gather it with the root.

verl's fused kernels read `lm_head.weight` and never call that module, so a head that FSDP2 shards as a unit of its own
is still in shards when they do. A head that is the embedding (`tie_word_embeddings`) belongs to the root already.
"""

from functools import wraps

from torch import nn
from verl.utils import fsdp_utils

_targets = fsdp_utils._select_fsdp2_wrap_targets


@wraps(_targets)  # its signature stays: tests/backends/internals.py reads it
def targets(model: nn.Module, classes: list[str]) -> list[nn.Module]:
    """The modules that FSDP2 shards as units of their own: verl's, without the head if fused kernels read it."""
    found = _targets(model, classes)
    if not any(hasattr(module, "_verl_fused_kernels_backend") for module in model.modules()):
        return found
    heads = {module for name, module in model.named_modules() if name.rpartition(".")[2] == "lm_head"}
    return [module for module in found if module not in heads]


fsdp_utils._select_fsdp2_wrap_targets = targets
