"""A run that goes on with other settings: they hold in its next step."""

import pytest

from seal.system import exits
from tests.support.struck_run import experiment

pytestmark = pytest.mark.slow

SMALL = (
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.rollout.n=4",
    "trainer.logger=[console,file]",
    "trainer.val_before_train=false",
    "trainer.test_freq=-1",
    "trainer.save_freq=2",
)


def test_a_smaller_learning_rate_trains_the_next_step():
    with experiment("test-smaller-lr", SMALL) as run:
        run.loggers = None
        first = run.finish("trainer.total_training_steps=2")
        assert first.returncode == exits.FINISHED, first.stdout
        second = run.finish("trainer.total_training_steps=3", "actor_rollout_ref.actor.optim.lr=1e-5")
        assert second.returncode == exits.FINISHED, second.stdout
        lines = run.lines(f"after_2/SEAL/{run.name}.jsonl")
        rates = {line["step"]: line["data"]["actor/lr"] for line in lines if "actor/lr" in line["data"]}
        assert rates == pytest.approx({3: 1e-5})
