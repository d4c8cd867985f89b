"""A prompt that is computed once leaves the log-probs and gradients of whole rows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seal.backends.cpu_rows import PromptedRow, micro_batches, shared
from seal.backends.packed_attention import NAME
from tests.backends.test_packed_attention import model
from tests.support.packing import gradients, packed, rows_of

GROUP = st.tuples(st.integers(1, 30), st.lists(st.integers(0, 12), min_size=1, max_size=4))


@settings(max_examples=30)
@given(st.lists(GROUP, min_size=1, max_size=3))
def test_logits_and_gradients_are_those_of_whole_rows(groups):
    ids, positions = packed(groups)
    kept, places = shared(rows_of(groups))
    assert len(kept) == sum(before + sum(responses) for before, responses in groups)
    assert torch.equal(ids[:, kept][:, places], ids) and torch.equal(positions[:, kept][:, places], positions)
    expected, expected_gradient = gradients(model(NAME), ids, positions, torch.arange(ids.shape[1]))
    found, gradient = gradients(model(NAME), ids[:, kept], positions[:, kept], places)
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
