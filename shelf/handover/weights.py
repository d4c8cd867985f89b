"""The weights of a checkpoint as files that transformers, PEFT and vLLM load.

verl's own merger rounds every weight to bfloat16, which is not the model that a run in
float32 trained, and unpickles without restriction. So this module joins the shards itself;
transformers and PEFT do the rest.
"""

import json
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.distributed.tensor import DTensor, Shard
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel
from transformers.utils import logging as transformers_logging

# Its warning is about compiling unpickled objects, which does not happen here.
logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*.bin")
GENERATION = "generation_config.json"

_META = "lora_train_meta.json"
_SHARD = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")


def write_model(actor: Path, out: Path, dtype: str | None, base: str, merge_adapter: bool = False) -> str:
    """Write what an actor learnt to `out`, with tokenizer and configuration; return "model" or "adapter".

    A run with low-rank adapters gives an adapter of `base`, or with `merge_adapter` a whole
    model. dtype: that of the weights, None for the configuration's. ValueError, in one
    sentence, for weights that do not fit each other or the configuration.
    """
    parts = actor / "huggingface"
    if not (parts / "config.json").is_file():
        raise ValueError(f"{parts} holds no config.json: name another step.")
    config = AutoConfig.from_pretrained(parts)
    wanted = DTYPES.get(dtype or "") or config.dtype or torch.bfloat16
    weights = merged_weights(actor, wanted)
    # The same choice as verl's (get_hf_auto_model_class): a model that takes images is trained whole.
    images = type(config) in AutoModelForImageTextToText._model_mapping
    with torch.device("meta"):  # without its own memory: loading then checks every name and shape
        # Whoever loads the model does not have the run's own attention (`seal.backends`): transformers chooses again.
        kind = AutoModelForImageTextToText if images else AutoModelForCausalLM
        model = kind.from_config(config, dtype=wanted, attn_implementation="eager")
        if any(".lora_A." in name for name in weights):
            model = _with_adapter(model, actor, weights, base)
    adapter_only = all(".lora_" in name for name in weights)
    if adapter_only and merge_adapter:
        raise ValueError(f"{actor} holds only the adapter: leave out --merge-adapter.")
    try:
        model.load_state_dict(weights, assign=True, strict=not adapter_only)
    except RuntimeError as error:
        raise ValueError(f"The weights do not fit the configuration: {' '.join(str(error).split())[:300]}") from error
    # The rest of the folder is what verl saved: the tokenizer, its chat template and the generation settings.
    shutil.copytree(parts, out, ignore=shutil.ignore_patterns(*WEIGHTS), dirs_exist_ok=True)
    transformers_logging.disable_progress_bar()
    if isinstance(model, PeftModel) and not merge_adapter:
        for name in ("config.json", GENERATION):
            (out / name).unlink(missing_ok=True)  # the base model's: an adapter's folder must not look like its
        model.save_pretrained(out, save_embedding_layers=False)
        return "adapter"
    whole = model.merge_and_unload() if isinstance(model, PeftModel) else model
    whole.tie_weights()
    whole.config.dtype = wanted
    whole.save_pretrained(out)
    if (parts / GENERATION).is_file():  # it has the tokenizer's stop tokens, which transformers would overwrite
        shutil.copyfile(parts / GENERATION, out / GENERATION)
    return "model"


def merged_weights(actor: Path, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """The whole weights by name, floating-point ones as `dtype` (None: as saved).

    ValueError, in one sentence, for a folder without shards, for a missing rank, or for a layout other than FSDP's.
    """
    files = {(int(m[1]), int(m[2])): path for path in actor.glob("*.pt") if (m := _SHARD.fullmatch(path.name))}
    if not files:
        raise ValueError(f"{actor} holds no weights (model_world_size_*_rank_*.pt): name another step.")
    world = max(size for size, _ in files)
    if missing := [rank for rank in range(world) if (world, rank) not in files]:
        raise ValueError(f"{actor} lacks the weights of rank {missing[0]} of {world}: name another step.")
    # Memory-mapped, so that a tensor takes memory only once it is read.
    ranks = [torch.load(files[world, rank], map_location="cpu", mmap=True, weights_only=True) for rank in range(world)]
    weights = {}
    for name in list(ranks[0]):
        whole = _whole(name, [rank.pop(name) for rank in ranks])
        weights[name] = whole.to(dtype) if dtype and whole.is_floating_point() else whole
    return weights


def _whole(name: str, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    first = parts[0]
    if not isinstance(first, DTensor):
        return first
    # With several replicas of the model (a mesh of two dimensions), the first replica is used.
    *outer, placement = first.placements
    if any(isinstance(each, Shard) for each in outer):
        raise ValueError(f"{name} is split in more than one dimension ({first.placements}): only FSDP is supported.")
    if not isinstance(placement, Shard):
        return first.to_local()
    pieces = [part.to_local() for part in parts[: first.device_mesh.shape[-1]]]
    return torch.cat(pieces, dim=placement.dim)


def _with_adapter(model: PreTrainedModel, actor: Path, weights: Mapping[str, Any], base: str) -> PeftModel:
    """The model with the trained adapter, whose scale verl saved beside the weights."""
    try:
        meta = json.loads((actor / _META).read_text(encoding="utf-8"))
        scale = {"r": int(meta["r"]), "lora_alpha": int(meta["lora_alpha"]), "task_type": meta["task_type"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{actor / _META} cannot be read, so the adapter's scale is unknown ({error}).") from error
    targets = sorted({name.split(".lora_A.")[0].rpartition(".")[2] for name in weights if ".lora_A." in name})
    model.name_or_path = base
    config = LoraConfig(**scale, target_modules=targets, init_lora_weights=False)
    made = get_peft_model(model, config)
    config.inference_mode = True
    return made
