"""Does the engine hold the weights that were sent? A weight sync that fails in silence leaves it behind the trainer.

At a learning rate of 1e-6 log-probs of stale weights stay within bf16's noise for tens of steps, so bits are compared.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

WATCHED = "down_proj.weight"
"""One matrix of each layer, which engines load as it is: others are fused or hardly change in bf16."""
METHOD = "seal_require_weights"


class Digest(NamedTuple):
    """Elements, precision and the sum of the bits of a tensor, whatever its layout."""

    elements: int
    precision: str
    bits: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Digest":
        """The digest of a tensor of 16 or 32 bits per element."""
        whole = torch.int16 if tensor.element_size() == 2 else torch.int32
        return cls(tensor.numel(), str(tensor.dtype), tensor.view(whole).sum(dtype=torch.int64).item())


def require_weights(worker: Any, sent: Mapping[str, tuple[int, str, int]]) -> None:
    """RuntimeError if a weight in vLLM's worker is not the one sent; shards and other precisions are not compared."""
    for name, weight in worker.model_runner.model.named_parameters():
        if name in sent and (own := Digest.of(weight)) != (expected := Digest(*sent[name])) and own[:2] == expected[:2]:
            raise RuntimeError(f"The weight sync failed: the engine's {name} is not the trainer's.")
