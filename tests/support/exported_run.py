"""A finished run with checkpoints as verl's FSDP2 saves them, in seconds: real logs, real shards, and no trainer."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from seal.data.rows import write_rows
from seal.data.selection import selected_rows
from seal.records.folder import RunFolder
from seal.settings.data import Selection
from seal.settings.run import CheckpointSettings
from seal.system.paths import HOME
from seal.training.checkpoints import Checkpoints, save_state
from tests.support.played_run import SMALL, write_run

POLICY = HOME / "data" / "quickstart_policy"
RANKS = 2
CATEGORIES = "seal.data.val=[{split: train, limit: 2}, {split: train, prefix_turns: [1], limit: 1}]"


def trained(seed: int) -> PreTrainedModel:
    """The small policy, moved a little, as training would."""
    model = AutoModelForCausalLM.from_pretrained(POLICY)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.02 * weight.abs().mean() * torch.randn(weight.shape, generator=generator)
    return model


def write_exportable(folder: Path, models: dict[int, PreTrainedModel], best: int | None, *overrides: str) -> Path:
    """A run with one checkpoint per step of `models`; best: the one that validation names."""
    write_run(folder, *SMALL, CATEGORIES, *overrides, steps=max(models), validations=(0, max(models)))
    checkpoints = Checkpoints(RunFolder(folder).checkpoints, CheckpointSettings(keep_last=9))
    for step, model in models.items():
        with checkpoints.saving(step) as written:
            save_state(written, {"step": step, "seed": 0, "loop": {"omega": _omega(folder, step)}, "log": {}})
            save_sharded(model, written / "actor")
    if best is not None:
        checkpoints.validated(best, 0.5, 0.5)
    rows = RunFolder(folder).training_rows
    rows.parent.mkdir(exist_ok=True)
    write_rows(selected_rows(Selection(split="eval", limit=1)), rows)
    return folder


def save_sharded(model: PreTrainedModel, actor: Path) -> None:
    """Save a model as FSDP2 does: one file of DTensors per rank, and configuration and tokenizer beside them."""
    actor.mkdir(parents=True)
    weights = model.state_dict()
    for rank in range(RANKS):
        # A process group that sends nothing: the shards of every rank are made in this process.
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=RANKS)
        try:
            mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("fsdp",))
            shards = {name: _shard(weight.detach(), mesh, rank) for name, weight in weights.items()}
            torch.save(shards, actor / f"model_world_size_{RANKS}_rank_{rank}.pt")
        finally:
            dist.destroy_process_group()
    parts = actor / "huggingface"
    base = getattr(model, "base_model", model) if hasattr(model, "peft_config") else model
    base.config.save_pretrained(parts)
    AutoTokenizer.from_pretrained(POLICY).save_pretrained(parts)
    shutil.copyfile(POLICY / "generation_config.json", parts / "generation_config.json")
    if adapters := getattr(model, "peft_config", None):
        own = adapters["default"]
        meta = {"r": own.r, "lora_alpha": own.lora_alpha, "task_type": "CAUSAL_LM"}
        (actor / "lora_train_meta.json").write_text(json.dumps(meta))


def _shard(weight: torch.Tensor, mesh: Any, rank: int) -> DTensor:
    part = list(weight.chunk(RANKS))[rank].clone()
    return DTensor.from_local(part, mesh, [Shard(0)], run_check=False, shape=weight.shape, stride=weight.stride())


def _omega(folder: Path, step: int) -> dict[str, Any]:
    lines = map(json.loads, RunFolder(folder).log("omega").read_text().splitlines())
    return next(line["omega"] for line in lines if line["step"] == step)
