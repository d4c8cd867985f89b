"""A grown policy: the same answers, and all of it trains."""

import json

import pytest
import torch

from seal.system.paths import HOME
from shelf.testbed.policy.grow import LARGE, Size, grow, grown
from shelf.testbed.tests.policy.tiny import tiny


@pytest.fixture(scope="module")
def small():
    return tiny(seed=3).eval()


def test_a_grown_policy_says_the_same_and_trains_all_of_itself(small):
    size = Size(hidden=160, layers=4, heads=5, kv_heads=5, feed_forward=256)
    with pytest.raises(ValueError, match="heads"):
        grown(small, size)
    size = Size(hidden=192, layers=4, heads=6, kv_heads=3, feed_forward=256)
    large = grown(small, size).eval()
    ids = torch.randint(3, 64, (2, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours, theirs = large(ids).logits, small(ids).logits
    assert large.num_parameters() > 5 * small.num_parameters()
    assert torch.allclose(ours, theirs, atol=1e-4), (ours - theirs).abs().max()

    optimizer = torch.optim.AdamW(large.parameters(), lr=1e-3)
    for _ in range(2):  # what is added writes nothing at first, so that what feeds it moves from the second step on
        optimizer.zero_grad()
        large(ids, labels=ids).loss.backward()
        optimizer.step()
    idle = [name for name, weight in large.named_parameters() if not weight.grad.abs().sum() > 0]
    assert idle == []


def test_the_committed_policy_grows_to_a_hundred_million(tmp_path):
    assert 95e6 < grow(HOME / "data" / "quickstart_policy", tmp_path) < 110e6
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["Qwen2ForCausalLM"] and config["hidden_size"] == LARGE.hidden
    assert (tmp_path / "tokenizer.json").exists() and (tmp_path / "chat_template.jinja").exists()
