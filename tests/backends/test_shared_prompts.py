"""A prompt that is computed once leaves the log-probs and gradients of whole rows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.backends.packed_attention import NAME
from seal.backends.shared_prompts import PromptedRow, micro_batches, shared
from tests.backends.test_packed_attention import model

GROUP = st.tuples(st.integers(1, 30), st.lists(st.integers(0, 12), min_size=1, max_size=4))


def rows_of(groups):
    return [
        PromptedRow(bytes([number]), prompt, n) for number, (prompt, responses) in enumerate(groups) for n in responses
    ]


def packed(groups):
    """Token ids and positions of whole rows: the responses of a group follow the same prompt."""
    draws = torch.Generator().manual_seed(1)
    ids, positions = [], []
    for before, responses in groups:
        prompt = torch.randint(0, 50, (before,), generator=draws)
        for n in responses:
            ids.append(torch.cat((prompt, torch.randint(0, 50, (n,), generator=draws))))
            positions.append(torch.arange(before + n))
    return torch.cat(ids)[None], torch.cat(positions)[None]


def gradients(ids, positions, places):
    policy = model(NAME)
    logits = policy(input_ids=ids, position_ids=positions, use_cache=False).logits[0, places]
    logits.log_softmax(-1)[:, 7].sum().backward()
    return logits.detach(), torch.cat([each.grad.flatten() for each in policy.parameters()])


@settings(max_examples=30, deadline=None)
@given(st.lists(GROUP, min_size=1, max_size=3))
def test_logits_and_gradients_are_those_of_whole_rows(groups):
    ids, positions = packed(groups)
    kept, places = shared(rows_of(groups))
    assert len(kept) == sum(before + sum(responses) for before, responses in groups)
    assert torch.equal(ids[:, kept][:, places], ids) and torch.equal(positions[:, kept][:, places], positions)
    expected, expected_gradient = gradients(ids, positions, torch.arange(ids.shape[1]))
    found, gradient = gradients(ids[:, kept], positions[:, kept], places)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert (gradient - expected_gradient).norm() <= 1e-5 * expected_gradient.norm()


@given(st.lists(GROUP, min_size=1, max_size=4), st.integers(1, 80), st.integers(1, 4), st.randoms())
def test_micro_batches_hold_every_row_once_and_keep_the_limit(groups, limit, least, random):
    rows = rows_of(groups)
    random.shuffle(rows)
    parts = micro_batches(rows, limit, min(least, len(rows)))
    assert sorted(place for part in parts for place in part) == [*range(len(rows))]
    assert len(parts) >= min(least, len(rows)) and all(parts)
    for part in parts:
        computed = len(shared([rows[place] for place in part])[0])
        assert computed <= limit or len(part) == 1


@pytest.mark.parametrize(("limit", "parts"), [(40, [[0, 2], [1, 3]]), (30, [[0, 2], [1], [3]]), (99, [[0, 2, 1, 3]])])
def test_the_rows_of_a_prompt_stay_beside_each_other(limit, parts):
    rows = [PromptedRow(b"a", 20, 5), PromptedRow(b"b", 20, 10), PromptedRow(b"a", 20, 5), PromptedRow(b"b", 20, 10)]
    assert micro_batches(rows, limit) == parts
