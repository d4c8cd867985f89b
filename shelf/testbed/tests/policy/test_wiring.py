"""The wired start copies before any training, and begins to read."""

import random

import pytest
import torch

from shelf.testbed.policy.model import SIZES, Size, new_model

VOCABULARY = 1024


def accuracy_on_repeats(model, length, rows=6, seed=99):
    """Share of tokens predicted in segments that stood earlier in a row of random tokens, but for their first."""
    rng = random.Random(seed)
    right = total = 0
    for _ in range(rows):
        ids, repeated = [rng.randrange(3, VOCABULARY) for _ in range(length // 2)], []
        while len(ids) < length:
            start, size = rng.randrange(len(ids) - 8), rng.randint(3, 8)
            repeated += range(len(ids) + 1, len(ids) + size)
            ids += ids[start : start + size]
        with torch.no_grad():
            guesses = model(torch.tensor([ids])).logits[0].argmax(-1)
        right += sum(int(guesses[position - 1]) == ids[position] for position in repeated)
        total += len(repeated)
    return right / total


@pytest.mark.parametrize(("length", "least"), [(64, 0.8), (384, 0.7)])
def test_an_untrained_policy_copies_what_stood_before(length, least):
    model = new_model(SIZES["small"], VOCABULARY, context=512, end_id=2, pad_id=0, seed=0).eval()
    assert accuracy_on_repeats(model, length) > least


def share_read(model, rows=4, pairs=30, seed=98):
    """Share of names found again: `tool x name` stands in a list, and `tool y` is to be followed by the name."""
    rng = random.Random(seed)
    contexts, names = [], []
    for _ in range(rows):
        entries = list(zip(rng.sample(range(10, 200), pairs), rng.sample(range(200, 1000), pairs), strict=True))
        listed = [token for tool, name in entries for token in (tool, 5, name, 6)]
        filler = [rng.randrange(200, 1000) for _ in range(100)]
        for tool, name in rng.sample(entries, 8):
            contexts.append([*listed, *filler, 7, tool, 8])
            names.append(name)
    with torch.no_grad():
        guesses = model(torch.tensor(contexts)).logits[:, -1].argmax(-1)
    return float((guesses == torch.tensor(names)).float().mean())


def test_an_untrained_policy_finds_what_stood_second_after_a_token():
    """By chance it would be 1 in 1,024: this is what the warm start makes reading of."""
    model = new_model(SIZES["small"], VOCABULARY, context=512, end_id=2, pad_id=0, seed=0).eval()
    assert share_read(model) > 0.05


def test_a_shape_without_room_for_the_circuit_is_refused():
    with pytest.raises(ValueError, match="copying circuit needs"):
        new_model(Size(64, 2, 2, 2, 128), 64, context=64, end_id=2, pad_id=0, seed=0)
