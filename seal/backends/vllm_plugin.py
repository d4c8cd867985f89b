"""vLLM's side of a weight sync, in the API process, the engine and every worker: the run's socket, and its check.

Does the engine hold the weights that were sent? A sync that fails in silence leaves it behind the trainer: at a
learning rate of 1e-6 the log-probs of stale weights stay within bf16's noise for tens of steps, so bits are compared.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from seal.backends.weight_socket import VARIABLE

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


def register() -> None:
    """Prepare vLLM for weight updates: the run's own socket, their check, and on a CPU layers that notice them."""
    from vllm.platforms import current_platform
    from vllm.v1.worker.worker_base import WorkerBase

    if own := os.environ.get(VARIABLE):
        os.environ["VERL_RAY_JOB_ID"] = own
    setattr(WorkerBase, METHOD, require_weights)
    if current_platform.is_cpu():
        from vllm import _custom_ops

        _custom_ops._supports_onednn = False  # else each linear layer computes with a private copy of its weight
