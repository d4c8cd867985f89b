"""The warm start: batches, weights of the loss, and that it learns."""

import random

import torch
from hypothesis import given
from hypothesis import strategies as st

from shelf.testbed.policy.warm_start import Encoded, WarmStartSettings, batches, collate, dialogue_loss, warm_start
from shelf.testbed.tests.policy.tiny import tiny


def dialogue(length, fill=1, spoken=0.5):
    said = int(length * spoken)
    return Encoded((fill,) * length, (False,) * (length - said) + (True,) * said)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(20, 200), st.integers())
def test_a_round_takes_one_dialogue_of_each_group_within_the_budget(lengths, budget, seed):
    groups = [[dialogue(length, fill=number)] for number, length in enumerate(lengths)]
    stream = batches(groups, budget, random.Random(seed))
    seen = []
    while len(seen) < len(groups):
        batch = next(stream)
        assert len(batch) == 1 or len(batch) * max(len(item.ids) for item in batch) <= budget
        seen += [item.ids[0] for item in batch]
    assert sorted(seen) == list(range(len(groups)))


def test_padding_weighs_nothing_others_little_the_assistant_fully():
    ids, weights = collate([dialogue(4), dialogue(2)], other_weight=0.25)
    assert ids.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert weights.tolist() == [[0.25, 0.25, 1, 1], [0.25, 1, 0, 0]]


def test_the_other_tokens_take_turns():
    phases = [collate([dialogue(9, spoken=0)], 0.1, phase=phase)[1] for phase in range(4)]
    assert torch.allclose(sum(phases), torch.full((1, 9), 0.4))
    assert [int((part > 0).sum()) for part in phases] == [3, 2, 2, 2]


def test_padding_changes_no_loss():
    model = tiny()
    short = Encoded((5, 6, 7, 8), (False, False, True, True))
    alone = dialogue_loss(model, *collate([short], 0.2))[1]
    ids, weights = collate([short, dialogue(9)], 0.2)
    weights[1] = 0
    assert torch.allclose(alone, dialogue_loss(model, ids, weights)[1], atol=1e-2)


def test_it_learns_and_the_seed_decides_everything():
    rng = random.Random(0)
    groups = []
    for _ in range(8):
        head = tuple(rng.randrange(3, 64) for _ in range(6))
        groups.append([Encoded((*head, 2, *head), (False,) * 7 + (True,) * 6)])

    def run(seed, tokens=600, until=0.0):
        model, steps = tiny(seed), []
        settings = WarmStartSettings(tokens, muon_lr=0.015, adam_lr=0.008, batch_tokens=200)

        def is_enough(step):
            steps.append(step)
            return step.loss < until * steps[0].loss

        warm_start(model, groups, settings, seed, is_enough)
        return model, steps

    _, steps = run(0, tokens=12_000, until=0.5)
    assert steps[-1].loss < 0.5 * steps[0].loss
    (first, steps), (second, again), (other, _) = run(0), run(0), run(1)
    assert [step.loss for step in steps] == [step.loss for step in again]
    weights = zip(first.parameters(), second.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in weights)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)
