"""verl's data loader goes on where a checkpoint stands, in every step and across epochs."""

import io
import itertools

import torch
from omegaconf import OmegaConf
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.utils import create_rl_sampler

ROWS, BATCH, STEPS = 11, 3, 8  # two rows of each epoch are left over


class Loader:
    """The training data loader as verl's trainer makes and reads it."""

    def __init__(self):
        sampler = create_rl_sampler(OmegaConf.create({"shuffle": True, "seed": 0}), range(ROWS))
        self.loader = StatefulDataLoader(
            range(ROWS), batch_size=BATCH, drop_last=True, collate_fn=list, sampler=sampler, num_workers=0
        )
        self._batches = None

    def next(self):
        if self._batches is None:
            self._batches = itertools.chain.from_iterable(iter(self.loader) for _ in itertools.count())
        return next(self._batches)


def written_and_read(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_the_order_after_a_resume_is_the_uninterrupted_one():
    whole = Loader()
    batches, before, after = [], [], []
    for _ in range(STEPS):
        # The trainer asks before each step too: a stop during its rollouts saves the step before.
        before.append(whole.loader.state_dict())
        batches.append(whole.next())
        after.append(whole.loader.state_dict())
    for step in range(1, STEPS):
        for state in (before[step], after[step - 1]):
            resumed = Loader()
            resumed.loader.load_state_dict(written_and_read(state))
            resumed.loader.state_dict()
            assert [resumed.next() for _ in range(STEPS - step)] == batches[step:]


def test_asking_for_the_state_changes_no_order():
    asked, unasked = Loader(), Loader()
    for _ in range(STEPS):
        asked.loader.state_dict()
        assert asked.next() == unasked.next()
