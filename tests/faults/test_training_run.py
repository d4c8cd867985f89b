"""One run that suffers every fault, in the order of the tests, and one undisturbed run: both end the same."""

import re
import signal
import subprocess

import pytest

from seal.records.ending import Ending
from seal.system import exits
from seal.training.checkpoints import SAVING
from tests.support.launches import HOME
from tests.support.struck_run import NOTICED_S, assert_same, check_intact, error_of, experiment, strike

pytestmark = pytest.mark.slow

STEPS = 8
SMALL = (
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.rollout.n=4",
    "seal.data.val=[{split: eval, limit: 1}]",
    "trainer.save_freq=2",
    f"trainer.test_freq={STEPS}",
    f"trainer.total_training_steps={STEPS}",
)


@pytest.fixture(scope="module")
def quiet():
    """The undisturbed run."""
    with experiment("test-fault-quiet", SMALL) as run:
        done = run.finish()
        assert done.returncode == exits.FINISHED, done.stdout
        yield run


@pytest.fixture(scope="module")
def battered():
    """The run that suffers every fault; each test starts it again where the last one ended it."""
    with experiment("test-fault-battered", SMALL) as run:
        yield run


@pytest.mark.fault(
    event="kill -9 of the vLLM engine during rollouts",
    user_sees="N of M trajectories of this step were lost to infrastructure (engine N), or: the engine of the rollout "
    "server has died",
    outcome="the run ends within two minutes with code 4, and the next launch resumes; it does not train on an "
    "incomplete batch",
)
def test_the_engine_dies_in_the_rollouts(battered):
    code, error = strike(battered, "train", "EngineCore", "engine", after=3)
    assert code == exits.INFRASTRUCTURE and "engine" in error
    check_intact(battered)


@pytest.mark.fault(
    event="kill -9 of the vLLM engine between rollouts",
    user_sees="The engine of the rollout server NAME has died",
    outcome="the run ends within two minutes with code 4, and the next launch resumes",
)
def test_the_engine_dies_outside_the_rollouts(battered):
    code, error = strike(battered, "update", "EngineCore", "engine", after=2)
    assert code == exits.INFRASTRUCTURE and "rollout server vllm_server" in error and "has died" in error
    check_intact(battered)


@pytest.mark.fault(
    event="kill -9 of an agent-loop worker",
    user_sees="The process of the agent-loop worker NAME has died",
    outcome="the run ends within two minutes with code 4, and the next launch resumes",
)
def test_an_agent_loop_worker_dies(battered):
    code, error = strike(battered, "train", "ray::AgentLoopWorker", "agent-loop worker", after=3)
    assert code == exits.INFRASTRUCTURE and "agent-loop worker" in error and "has died" in error
    check_intact(battered)


@pytest.mark.fault(
    event="kill -9 of the trainer in a step",
    user_sees="The process of the trainer TaskRunner has died",
    outcome="the run ends with code 4; the next launch resumes after the last checkpoint and trains the lost steps "
    "again, the same",
)
def test_the_trainer_dies_in_a_step(battered):
    code, error = strike(battered, "update", "ray::TaskRunner", "trainer", after=2)
    assert code == exits.INFRASTRUCTURE and "The process of the trainer TaskRunner has died" in error
    check_intact(battered)


@pytest.mark.fault(
    event="kill -9 of the training process by the system (out of memory)",
    user_sees="The training process was killed by SIGKILL, perhaps because memory ran out",
    outcome="as above",
)
def test_the_training_process_is_killed(battered):
    code, error = strike(battered, "train", "seal.training.main", "training process", after=1)
    assert code == exits.INFRASTRUCTURE and "SIGKILL" in error
    check_intact(battered)


@pytest.mark.fault(
    event="kill -9 of the trainer while it saves",
    user_sees="The process of the trainer TaskRunner has died",
    outcome="code 4; the earlier checkpoint is whole and the next launch resumes from it",
)
def test_the_trainer_dies_in_a_save(battered):
    before = battered.saved
    launcher = battered.start()
    battered.wait_for(launcher, lambda: battered.processes(launcher, "ray::TaskRunner"), "the trainer")
    # Found in advance: a save of such a small policy is shorter than a search for the process.
    trainer = battered.process(launcher, "ray::TaskRunner")
    battered.wait_for(launcher, (battered.checkpoints / SAVING).is_dir, "a save", 0.001)
    trainer.kill()
    output, _ = launcher.communicate(timeout=NOTICED_S)
    assert launcher.returncode == exits.INFRASTRUCTURE and "resume" in error_of(output)
    check_intact(battered)
    assert battered.saved == before


@pytest.mark.fault(
    event="Ctrl-C or SIGTERM",
    user_sees="stopping: the trainer saves a checkpoint, within 600 s; Ctrl-C again to stop at once",
    outcome="a checkpoint of the last finished step is saved; code 130 or 143; the next launch resumes there",
)
def test_sigterm_saves_the_last_finished_step(battered):
    launcher = battered.start()
    # An odd step: nothing would be saved after it.
    wanted = battered.saved + 1
    battered.wait_for(launcher, lambda: battered.stage == ("train", wanted + 1), f"step {wanted + 1}", 0.05)
    launcher.send_signal(signal.SIGTERM)
    output, _ = launcher.communicate(timeout=300)
    assert launcher.returncode == exits.TERMINATED, output
    assert "stopping: the trainer saves" in output and f"step {wanted} is saved" in output
    check_intact(battered)
    assert battered.saved == wanted and battered.logged[-1] == wanted


def test_the_disturbed_run_ends_like_the_undisturbed_one(battered, quiet):
    done = battered.finish()
    assert done.returncode == exits.FINISHED, done.stdout
    assert_same(battered, quiet, STEPS)


@pytest.mark.fault(
    event="kill -9 of the launcher",
    user_sees="no further output; the kernel ends its training process with it, and `ending.json` says so",
    outcome="no process stays behind, and the next launch resumes",
)
def test_the_launcher_dies():
    with experiment("test-fault-launcher", SMALL) as run:
        launcher = run.start("trainer.val_before_train=false")
        run.wait_for(launcher, lambda: run.stage[0] == "train", "a step")
        family = run.family(launcher)
        launcher.kill()
        launcher.communicate(timeout=60)
        run.wait_gone(family, NOTICED_S)
        assert run.leftovers() == []
        ending = Ending.read(run.folder)
        assert ending[:2] == (exits.INFRASTRUCTURE, "process") and "launcher" in ending.sentence


@pytest.mark.fault(
    event="The disk is full when the trainer saves",
    user_sees="The checkpoint of step N needs about X GiB; FOLDER has Y GiB free; the last whole one",
    outcome="the run ends with code 5; the earlier checkpoints stay whole",
)
def test_the_disk_is_full(small_disk):
    with experiment("test-fault-disk", SMALL) as run:
        run.checkpoints.mkdir(parents=True)
        script = (
            'mount -t tmpfs -o size=40m tmpfs "$0" && "$@"; code=$?; '
            'echo left: $(ls -A "$0"); cat "$0"/latest*; exit $code'
        )
        # The launcher must not refuse the small disk: it is the trainer that is to fill it.
        fill = run.command("trainer.save_freq=1", "seal.min_free_gb=0")
        command = [*small_disk[:4], script, str(run.checkpoints), *fill]
        done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == exits.CHECKPOINT, done.stdout + done.stderr
        assert re.search(r"checkpoint of step 2 needs about .* The last whole one is global_step_1", done.stdout)
        assert done.stdout.splitlines()[-2].split() == ["left:", "global_step_1", "latest_checkpointed_iteration.txt"]
        assert done.stdout.splitlines()[-1] == "1"
        assert run.leftovers() == []
