"""A pretrained language model in training; `make pretrained` makes it."""

import pytest

from seal.system import exits
from shelf.handover.pretrained import list_pretrained
from tests.support.struck_run import assert_same

MODEL = list_pretrained()["smollm2-135m-instruct"].folder.with_name("smollm2-135m-lessons")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (MODEL / "config.json").is_file(), reason=f"`make pretrained` makes {MODEL}"),
]

STEPS = 2
SMALL = (
    "seal.data.train={prefix_turns: null, mixture: [{tasks: data/pretrained/train.jsonl}]}",
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.rollout.n=4",
    "seal.rollout.max_steps=3",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=1",
)


def test_its_run_goes_on_bit_for_bit(make_run):
    whole, halved = (make_run(*SMALL, recipe="exp/pretrained_cpu.yaml") for _ in "12")
    for run, last in ((whole, STEPS), (halved, 1), (halved, STEPS)):
        done = run.finish(f"trainer.total_training_steps={last}", deadline_s=1200)
        assert done.returncode == exits.FINISHED, done.stdout
    assert_same(whole, halved, STEPS)
    steps = whole.lines("seal_log/steps.jsonl")
    assert any(step["groups_with_spread"] for step in steps), "no rollout taught anything"
    assert all(step["logp_diff_mean"] < 1e-3 for step in steps)
