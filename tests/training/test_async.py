"""The asynchronous trainer's changes beside verl's schedule: seeds of continuations, C_t by Omega, the check."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seal.method.profile import Profile, Tally
from seal.training.async_trainer import continued
from seal.training.batch import StepBatch
from seal.training.closed_loop import ClosedLoop, mark_groups
from tests.support.launches import refused
from tests.training.test_closed_loop import batch, record, run, settings


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 4096), min_size=2, max_size=8, unique=True))
def test_each_part_of_a_message_has_a_seed_of_its_own(seed, lengths):
    seeds = [continued(seed, length) for length in lengths]
    assert len(set(seeds)) == len(lengths)
    assert seeds == [continued(seed, length) for length in lengths]
    assert all(0 <= each < 2**32 for each in seeds)


def profile(loop: ClosedLoop) -> Profile:
    return Profile.from_json(loop.state["profile"])


def turns(tally: Tally) -> int:
    return sum(cell.count for cell in tally.labels().values())


def test_a_stale_trajectory_counts_in_the_step_that_drew_it():
    loop = ClosedLoop(settings("seal.diagnosis.window=2"))
    run(loop, 1, [record(i, drawn=1) for i in range(4)])
    run(loop, 2, [record(0, drawn=1), *(record(i, drawn=2) for i in range(1, 4))])
    counts = {step: turns(tally) for step, tally in profile(loop).steps}
    assert counts == {1: 5, 2: 3}
    # The Omega of step 1 leaves the window with all that was played with it, whenever that was trained.
    run(loop, 3, [record(0, drawn=1), *(record(i, drawn=3) for i in range(1, 4))])
    assert {step for step, _ in profile(loop).steps} == {2, 3}
    assert turns(profile(loop).recent()) == 6


def test_a_synchronous_step_counts_as_before():
    plain, drawn = ClosedLoop(settings()), ClosedLoop(settings())
    run(plain, 1, batch())
    run(drawn, 1, _drawn(batch(), 1))
    assert plain.state == drawn.state


def _drawn(records, step):
    return [replace(each, drawn=step, weights=(step - 1, step - 1)) for each in records]


def test_staleness_is_counted_in_updates():
    rows = [record(0, weights=(4, 4)), record(1, weights=(2, 4)), record(2, weights=None)]
    _, report = run(ClosedLoop(settings()), 5, rows)
    found = report.record.staleness
    assert (found.mean, found.min, found.max) == (1.0, 0, 2)
    assert report.record.metrics()["seal/staleness/max"] == 2


def compared(*weights):
    rows = [record(i, weights=each) for i, each in enumerate(weights)]
    mask = torch.ones(3, dtype=torch.bool)
    engine = tuple(torch.full((3,), float(i)) for i in range(len(rows)))
    actor = tuple(torch.zeros(3) for _ in rows)
    return StepBatch(
        "train",
        tuple(map(str, range(len(rows)))),
        tuple(range(len(rows))),
        tuple(rows),
        tuple(mark_groups(["prompt"] * len(rows), rows)),
        masks=(mask,) * len(rows),
        rollout_logprobs=engine,
        actor_logprobs=actor,
    )


def test_the_engine_is_checked_on_what_the_present_weights_sampled():
    strict = settings("seal.logprob_mean_tolerance=0.4")
    # Differences are 0, 1 and 2; only the first was sampled with the weights of step 6.
    figures = compared((6, 6), (5, 6), (5, 5)).compare_logprobs(7, strict)
    assert figures == {"logp_diff_max": 0.0, "logp_diff_mean": 0.0}
    with pytest.raises(RuntimeError, match=r"differ by 5\.00e-01 on average"):
        compared((6, 6), (6, 6)).compare_logprobs(7, strict)
    assert compared((5, 5), (5, 6)).compare_logprobs(7, strict) == {}
    silent = compared((6, 6), (5, 6))
    silent = replace(silent, masks=tuple(torch.zeros_like(mask) for mask in silent.masks))
    assert silent.compare_logprobs(7, strict) == {}, "no token, no figure"


def test_a_trainer_that_is_not_seals_is_refused():
    sentence = refused("trainer.v1.trainer_mode=separate_async")
    assert "trainer.v1.trainer_mode is 'separate_async'; it must be 'seal' or 'seal_async'" in sentence
