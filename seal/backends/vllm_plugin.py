"""A weight sync: the run's own socket, and vLLM's side in its API process, the engine and every worker.

verl sends new weights to vLLM over a socket in /tmp that it names after the Ray job, the replica and the rank. A
cluster counts its jobs from 1, so two runs on one host, each with a cluster of its own, use the same name: the
second one removes the socket of the first, which then waits forever.

Does the engine hold the weights that were sent? A sync that fails in silence leaves it behind the trainer: at a
learning rate of 1e-6 the log-probs of stale weights stay within bf16's noise for tens of steps, so bits are compared.
"""

import os
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

VARIABLE = "SEAL_WEIGHT_SOCKET"
"""Holds the run's part of the name; all its processes inherit it."""
WATCHED = "down_proj.weight"
"""One matrix of each layer, which engines load as it is: others are fused or hardly change in bf16."""
METHOD = "seal_require_weights"


class Digest(NamedTuple):
    """Elements, precision and the sum of the bits of a tensor, whatever its layout."""

    elements: int
    precision: str
    bits: int

    @classmethod
    def of(cls, tensor: "torch.Tensor") -> "Digest":
        """The digest of a tensor of 8, 16 or 32 bits per element."""
        import torch  # the launcher and the training process import this module, and not torch

        whole = {1: torch.int8, 2: torch.int16}.get(tensor.element_size(), torch.int32)
        return cls(tensor.numel(), str(tensor.dtype), tensor.view(whole).sum(dtype=torch.int64).item())


def claim() -> None:
    """Give the run of this process a socket of its own; call before its cluster starts."""
    os.environ[VARIABLE] = uuid.uuid4().hex


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
