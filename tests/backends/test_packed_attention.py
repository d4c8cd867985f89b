"""`packed_sdpa` equals torch's attention over each dialogue by itself, and what transformers computes with masks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen2Config, Qwen2ForCausalLM

from seal.backends.packed_attention import NAME, packed_attention


def model(implementation):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=50,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=256,
    )
    config._attn_implementation = implementation
    return Qwen2ForCausalLM(config)


def gradients(implementation, lengths):
    policy = model(implementation)
    ids = torch.randint(0, 50, (1, sum(lengths)), generator=torch.Generator().manual_seed(1))
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    logits = policy(input_ids=ids, position_ids=positions, use_cache=False).logits
    logits.square().mean().backward()
    return logits.detach(), [each.grad for each in policy.parameters()]


@settings(max_examples=20)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_a_packed_row_has_the_logits_and_gradients_of_masked_attention(lengths):
    expected, expected_gradients = gradients("sdpa", lengths)
    found, found_gradients = gradients(NAME, lengths)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for one, other in zip(found_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


def test_a_padded_batch_is_refused_with_the_key_to_set():
    rows = torch.zeros(2, 1, 4, 8)
    with pytest.raises(ValueError, match="use_remove_padding=true"):
        packed_attention(torch.nn.Identity(), rows, rows, rows, None, position_ids=torch.arange(4)[None])


def test_attention_that_it_does_not_compute_is_refused():
    rows, positions = torch.zeros(1, 1, 4, 8), torch.arange(4)[None]
    with pytest.raises(ValueError, match=r"window of 3 in a dialogue of 4 tokens.*attn_implementation=sdpa"):
        packed_attention(torch.nn.Identity(), *[rows] * 3, None, position_ids=positions, sliding_window=3)
    with pytest.raises(ValueError, match=r"no softcap.*attn_implementation=sdpa"):
        packed_attention(torch.nn.Identity(), *[rows] * 3, None, position_ids=positions, softcap=50.0)
    packed_attention(torch.nn.Identity(), *[rows] * 3, None, position_ids=positions, sliding_window=4)


def test_all_of_an_image_attends_to_all():
    query, key, value = torch.randn(3, 1, 2, 6, 8, generator=torch.Generator().manual_seed(0))
    found, _ = packed_attention(torch.nn.Identity(), query, key, value, None, is_causal=False)
    torch.testing.assert_close(found, scaled_dot_product_attention(query, key, value).transpose(1, 2))
