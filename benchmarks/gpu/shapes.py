"""Models of a published size with random weights: the load of a run, without a download of weights.

`python -m benchmarks.gpu.shapes MODEL OUT [--tokenizer FOLDER_OR_NAME] [--layers N]`, in a process of its own, whose
memory is free again afterwards. Random weights almost never sample an end token (one of 152,064), so every message has
the length of `seal.rollout.max_message_tokens`, which makes a step's load known.
"""

import argparse
import json
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

from shelf.operate.plan import KNOWN

QWEN2 = {"max_position_embeddings": 32768, "rope_theta": 1e6, "rms_norm_eps": 1e-6, "dtype": "bfloat16"}
"""What Qwen2.5's models have in common beside their sizes."""


def make(name: str, out: Path, tokenizer: str, layers: int | None = None) -> int:
    """Write a model with the sizes of a known Qwen2.5 model, or with fewer layers; returns its number of parameters."""
    sizes = json.loads(KNOWN.read_text(encoding="utf-8"))[name]
    sizes |= {"num_hidden_layers": layers or sizes["num_hidden_layers"]}
    tokens = AutoTokenizer.from_pretrained(tokenizer)
    config = Qwen2Config(**QWEN2, **sizes, eos_token_id=tokens.eos_token_id, pad_token_id=tokens.pad_token_id)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.generation_config.eos_token_id = tokens.eos_token_id
    tokens.save_pretrained(out)
    model.save_pretrained(out)
    return model.num_parameters()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.shapes", description=__doc__)
    parser.add_argument("model", choices=[name for name in json.loads(KNOWN.read_text()) if "Qwen2.5" in name])
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokenizer", help="a folder or a name on the hub; default: the model's")
    parser.add_argument("--layers", type=int, help="fewer layers, to rehearse")
    options = parser.parse_args()
    make(options.model, options.out, options.tokenizer or options.model, options.layers)
