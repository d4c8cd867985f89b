"""The weights of a checkpoint, put together from the shards of its ranks.

verl saves one file per rank (`model_world_size_W_rank_R.pt`), whose tensors are
DTensors where FSDP2 splits them and plain where it does not. They are read with
torch's restricted unpickler, one tensor at a time, and converted at once, so that
memory holds the model once in the wanted type.
"""

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

# Its warning is about compiling what was unpickled, which nobody does here.
logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)

_NAME = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")


def merged_weights(actor: Path, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """The whole weights by name, floating ones as `dtype` (None: as they are saved).

    ValueError, in one sentence, for a folder without shards, a rank that is missing, or a layout that is not FSDP's.
    """
    ranks = [_load(path) for path in _shards(actor)]
    weights = {}
    for name in list(ranks[0]):
        parts = [rank.pop(name) for rank in ranks]
        whole = _whole(name, parts)
        weights[name] = whole.to(dtype) if dtype and whole.is_floating_point() else whole
    return weights


def _shards(actor: Path) -> list[Path]:
    """The files of all ranks, in their order."""
    found = {(int(m[1]), int(m[2])): path for path in actor.glob("*.pt") if (m := _NAME.fullmatch(path.name))}
    if not found:
        raise ValueError(f"{actor} holds no weights (model_world_size_*_rank_*.pt): name another step.")
    world = max(size for size, _ in found)
    if missing := [rank for rank in range(world) if (world, rank) not in found]:
        raise ValueError(f"{actor} lacks the weights of rank {missing[0]} of {world}: name another step.")
    return [found[world, rank] for rank in range(world)]


def _load(path: Path) -> dict[str, Any]:
    # Mapped, so that a tensor takes memory only once it is read.
    loaded = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    if not isinstance(loaded, dict) or not all(isinstance(each, torch.Tensor) for each in loaded.values()):
        raise ValueError(f"{path} is not a file of weights: name another step.")
    return loaded


def _whole(name: str, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    first = parts[0]
    if not isinstance(first, DTensor):
        if any(not torch.equal(first, other) for other in parts[1:]):
            raise ValueError(f"{name} is not split and differs between the ranks: the checkpoint is damaged.")
        return first
    # With several replicas of the model (a mesh of two dimensions) the first replica is taken.
    *outer, placement = first.placements
    if not all(isinstance(each, Replicate) for each in outer):
        raise ValueError(f"{name} is split in more than one dimension ({first.placements}): only FSDP is supported.")
    if isinstance(placement, Replicate):
        return first.to_local()
    if not isinstance(placement, Shard):
        raise ValueError(f"{name} is laid out as {placement}: only FSDP is supported.")
    pieces = [part.to_local() for part in parts[: first.device_mesh.shape[-1]]]
    whole = torch.cat(pieces, dim=placement.dim)
    if whole.shape != first.shape:
        raise ValueError(f"{name} has the parts of {tuple(whole.shape)} instead of {tuple(first.shape)}.")
    return whole
