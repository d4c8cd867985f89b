"""Checkpoints as the trainer writes them, without a trainer."""

import torch

from seal.training.checkpoints import Checkpoints, save_state

STATE = {"step": 0, "seed": 0, "loop": {"rho": {"pass": 1.0}}, "log": {}}


def write_step(checkpoints: Checkpoints, step: int, numbers: int = 2_000) -> None:
    """Save a step as the trainer does: verl's files by torch, SEAL's state."""
    with checkpoints.saving(step) as folder:
        save_state(folder, {**STATE, "step": step})
        (folder / "actor").mkdir()
        for part, size in (("model", numbers), ("optim", 1), ("extra_state", 1)):
            torch.save({"weight": torch.arange(size)}, folder / "actor" / f"{part}_world_size_1_rank_0.pt")
        torch.save({"batch": step}, folder / "data.pt")
