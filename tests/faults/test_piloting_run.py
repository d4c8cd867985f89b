"""A run that chooses and pilots its prompts, killed and stopped between two waves: it ends like an undisturbed one."""

import signal

import pytest

from seal.system import exits
from tests.support.struck_run import assert_same, check_intact, experiment, strike

pytestmark = pytest.mark.slow

STEPS = 4
SMALL = (
    "seal.sampling.mode=gradient",
    "seal.sampling.pilot.samples=2",
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.rollout.n=4",
    "seal.data.val=[{split: eval, limit: 1}]",
    "trainer.save_freq=1",
    f"trainer.test_freq={STEPS}",
    f"trainer.total_training_steps={STEPS}",
)


@pytest.fixture(scope="module")
def quiet():
    """The undisturbed run."""
    with experiment("test-pilots-quiet", SMALL) as run:
        done = run.finish()
        assert done.returncode == exits.FINISHED, done.stdout
        yield run


@pytest.fixture(scope="module")
def battered():
    """The run that suffers every fault; each test starts it again where the last one ended it."""
    with experiment("test-pilots-battered", SMALL) as run:
        yield run


@pytest.mark.fault(
    event="kill -9 of the trainer, the vLLM engine or an agent-loop worker while pilots are rolled out",
    user_sees="as without pilots: the process that has died is named",
    outcome="code 4; the next launch draws the same prompts again, pilots them the same and decides the same",
)
@pytest.mark.parametrize("title", ["ray::TaskRunner", "EngineCore", "ray::AgentLoopWorker"])
def test_a_process_dies_while_pilots_are_rolled_out(battered, title):
    code, error = strike(battered, "train", title, title)
    assert code == exits.INFRASTRUCTURE, error
    check_intact(battered)


@pytest.mark.fault(
    event="Ctrl-C or SIGTERM while pilots are rolled out",
    user_sees="stopping: the trainer saves a checkpoint, within 600 s; Ctrl-C again to stop at once",
    outcome="the step before is saved, and the prompts of the interrupted one are drawn and piloted again",
)
def test_a_run_is_stopped_while_pilots_are_rolled_out(battered):
    wanted = battered.saved + 1
    launcher = battered.start()
    battered.wait_for(launcher, lambda: battered.stage == ("train", wanted + 1), f"step {wanted + 1}", 0.05)
    launcher.send_signal(signal.SIGTERM)
    output, _ = launcher.communicate(timeout=300)
    assert launcher.returncode == exits.TERMINATED, output
    check_intact(battered)
    assert battered.saved == wanted


def test_the_disturbed_run_ends_like_the_undisturbed_one(battered, quiet):
    done = battered.finish()
    assert done.returncode == exits.FINISHED, done.stdout
    assert_same(battered, quiet, STEPS)
    assert battered.lines("seal_log/sampling.jsonl") == quiet.lines("seal_log/sampling.jsonl")
