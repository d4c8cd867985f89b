"""A network for tests."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM


def tiny(seed: int = 0) -> Qwen2ForCausalLM:
    """A Qwen2 of two layers and 64 tokens, with random weights that follow from the seed."""
    torch.manual_seed(seed)
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    more = {"tie_word_embeddings": True, "eos_token_id": 2, "pad_token_id": 0, "bos_token_id": None}
    config = Qwen2Config(vocab_size=64, intermediate_size=128, max_position_embeddings=128, **shape, **more)
    return Qwen2ForCausalLM(config)
