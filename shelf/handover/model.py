"""The weights of a checkpoint as files that transformers, PEFT and vLLM load."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig
from transformers.utils import logging as transformers_logging

from seal.system.files import write_json
from shelf.handover.shards import merged_weights

LORA = ("lora_A", "lora_B")
_PEFT, _BASE = "base_model.model.", ".base_layer"
_META = "lora_train_meta.json"
WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "*.bin")
SEVERAL_INPUTS = "ForConditionalGeneration"
"""How architectures end that read more than text."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

Weights = dict[str, torch.Tensor]


def write_model(actor: Path, out: Path, dtype: str | None, base: str, merge_adapter: bool = False) -> str:
    """Write what an actor learnt into `out`, with tokenizer and configuration; returns "model" or "adapter".

    A run with low-rank adapters gives an adapter of `base`, or with `merge_adapter` a whole
    model. dtype: of the weights, None for that of the configuration. ValueError, in one
    sentence, for weights that do not fit each other or the configuration.
    """
    parts = actor / "huggingface"
    if not (parts / "config.json").is_file():
        raise ValueError(f"{parts} holds no config.json: name another step.")
    config = AutoConfig.from_pretrained(parts)
    wanted = DTYPES.get(dtype or "") or config.dtype or torch.bfloat16
    weights = merged_weights(actor, wanted)
    adapter = {name: weights.pop(name) for name in list(weights) if any(key in name for key in LORA)}
    # The rest of the folder is what verl saved of the tokenizer, its chat template and how answers are generated.
    shutil.copytree(parts, out, ignore=shutil.ignore_patterns(*WEIGHTS), dirs_exist_ok=True)
    if adapter and not merge_adapter:
        for name in ("config.json", "generation_config.json"):
            (out / name).unlink(missing_ok=True)  # of the base model, which an adapter's folder must not be taken for
        _write_adapter(actor, adapter, out, base)
        return "adapter"
    if adapter:
        weights = _with_adapter(actor, weights, adapter)
    _write_whole(config, weights, wanted, out)
    return "model"


def _write_whole(config: PreTrainedConfig, weights: Weights, dtype: torch.dtype, out: Path) -> None:
    # Without memory of its own: loading is then a check of every name and shape.
    kind = (config.architectures or [""])[0]
    family = AutoModelForImageTextToText if kind.endswith(SEVERAL_INPUTS) else AutoModelForCausalLM
    with torch.device("meta"):
        model = family.from_config(config, dtype=dtype)
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise ValueError(f"The weights do not fit the configuration: {' '.join(str(error).split())[:300]}") from error
    model.tie_weights()
    model.config.dtype = dtype
    # The tokenizer's stop tokens are the run's: what verl saved about generation goes on as it is.
    generation = out / "generation_config.json"
    kept = generation.read_bytes() if generation.is_file() else None
    transformers_logging.disable_progress_bar()  # a few seconds need none
    model.save_pretrained(out)
    if kept is not None:
        generation.write_bytes(kept)


def _write_adapter(actor: Path, adapter: Weights, out: Path, base: str) -> None:
    meta = _lora_meta(actor)
    tensors = {name.replace(".default.weight", ".weight"): tensor.contiguous() for name, tensor in adapter.items()}
    save_file(tensors, out / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": meta["task_type"],
        "base_model_name_or_path": base,
        "r": meta["r"],
        "lora_alpha": meta["lora_alpha"],
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.split(".")[-3] for name in tensors}),
        "inference_mode": True,
    }
    write_json(config, out / "adapter_config.json")


def _with_adapter(actor: Path, weights: Weights, adapter: Weights) -> Weights:
    """W + (alpha / r) B A for each matrix that has an adapter, under the base model's names."""
    if not weights:
        raise ValueError(f"{actor} holds only the adapter: leave out --merge-adapter.")
    meta = _lora_meta(actor)
    scale = meta["lora_alpha"] / meta["r"]
    merged = {_plain(name): tensor for name, tensor in weights.items()}
    for name, a in adapter.items():
        if ".lora_A." not in name:
            continue
        b = adapter[name.replace(".lora_A.", ".lora_B.")]
        target = f"{_plain(name.split('.lora_A.')[0])}.weight"
        own = merged[target]
        merged[target] = (own.float() + scale * (b.float() @ a.float())).to(own.dtype)
    return merged


def _plain(name: str) -> str:
    return name.removeprefix(_PEFT).replace(_BASE, "")


def _lora_meta(actor: Path) -> Mapping[str, int | str]:
    """Rank, alpha and task of a run's adapter, as verl saved them."""
    try:
        meta = json.loads((actor / _META).read_text(encoding="utf-8"))
        return {"r": int(meta["r"]), "lora_alpha": int(meta["lora_alpha"]), "task_type": str(meta["task_type"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{actor / _META} cannot be read, so the adapter's scale is unknown ({error}).") from error
