"""An asynchronous run that suffers every fault: every prompt is trained once, with the Omega that drew it."""

import contextlib
import json
import shutil
import signal
import time
from collections import Counter
from uuid import uuid4

import pytest
import torch

from seal.system import exits
from tests.support.launches import HOME, START_DEADLINE_S, Run, plays_episodes
from tests.support.struck_run import check_intact, strike

pytestmark = pytest.mark.slow

STEPS, PROMPTS, SAMPLES = 6, 2, 4
SMALL = (
    "trainer.v1.trainer_mode=seal_async",
    "trainer.v1.sampler.max_off_policy_threshold=4",
    "trainer.v1.sampler.max_off_policy_strategy=wait",
    f"data.train_batch_size={PROMPTS}",
    f"actor_rollout_ref.actor.ppo_mini_batch_size={PROMPTS}",
    f"actor_rollout_ref.rollout.n={SAMPLES}",
    "seal.data.val=[{split: eval, limit: 1}]",
    "seal.data.withdrawal=null",
    "trainer.save_freq=1",
    "trainer.test_freq=2",
    "trainer.val_before_train=false",
    f"trainer.total_training_steps={STEPS}",
)


@pytest.fixture(scope="module")
def run():
    """One run; each test goes on where the one before ended it. The environment answers as slowly as real tools."""
    made = Run(f"test-async-{uuid4().hex[:8]}", SMALL, ("env", "BFCL_DELAY_SECONDS=0.3"))
    yield made
    shutil.rmtree(made.folder, ignore_errors=True)
    shutil.rmtree(HOME / "launcher_record" / made.name, ignore_errors=True)


def reach(run, step):
    """Start the run and wait until it rolls out for `step`."""
    launcher = run.start()
    run.wait_for(launcher, lambda: run.stage[0] == "train" and run.stage[1] >= step, f"step {step}", 0.05)
    return launcher


@pytest.mark.fault(
    event="Ctrl-C or SIGTERM in the validation of an asynchronous run",
    user_sees="stopping: the trainer saves a checkpoint, within 600 s; Ctrl-C again to stop at once",
    outcome="the next launch plays the validation anew",
)
def test_a_run_that_is_stopped_in_a_validation(run):
    launcher = run.start()
    run.wait_for(launcher, lambda: run.stage == ("validate", 2), "a validation", 0.02)
    launcher.send_signal(signal.SIGTERM)
    output, _ = launcher.communicate(timeout=300)
    assert launcher.returncode == exits.TERMINATED, output
    assert run.saved == 2 and not (run.folder / "validation_log" / "2.jsonl").exists()


@pytest.mark.fault(
    event="kill -9 of the trainer while an asynchronous run rolls out",
    user_sees="A process of the run has died",
    outcome="code 4; the next launch takes up the rollouts of the last checkpoint: those that had ended as they are, "
    "the others from their beginning. No prompt is lost or trained twice",
)
def test_a_killed_trainer(run):
    launcher = reach(run, 3)
    run.process(launcher, "ray::TaskRunner").kill()
    output, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == exits.INFRASTRUCTURE, output
    assert run.leftovers() == []


@pytest.mark.fault(
    event="kill -9 of the vLLM engine or an agent-loop worker while an asynchronous run rolls out",
    user_sees="as in a synchronous run: the process that has died is named",
    outcome="code 4 within two minutes; the next launch goes on as above",
)
@pytest.mark.parametrize("title", ["EngineCore", "ray::AgentLoopWorker"])
def test_a_process_of_the_rollouts_dies(run, title):
    code, error = strike(run, "train", title, title)
    assert code == exits.INFRASTRUCTURE and "died" in error
    check_intact(run)


@pytest.mark.fault(
    event="Ctrl-C or SIGTERM in the rollouts of an asynchronous run",
    user_sees="stopping: the trainer saves a checkpoint, within 600 s; Ctrl-C again to stop at once",
    outcome="the last finished step is saved, and the next launch resumes there with the rollouts of its checkpoint",
)
def test_a_stopped_run(run):
    launcher = reach(run, run.saved + 2)
    launcher.send_signal(signal.SIGTERM)
    output, _ = launcher.communicate(timeout=300)
    assert launcher.returncode == exits.TERMINATED, output
    assert run.logged == list(range(1, run.saved + 1))


@pytest.mark.fault(
    event="kill -9 of the environment service while an asynchronous run rolls out (started by the launcher)",
    user_sees="`warning: The environment service ended with code -9 ... Started again (1 of 3 times)`",
    outcome="the episodes under way are rebuilt and the run goes on",
)
def test_a_run_goes_on_when_its_service_is_killed(run):
    since, launcher = time.time(), run.start()
    url = f"http://127.0.0.1:{run.port}"
    # The checks before training open episodes too.
    run.wait_for(launcher, lambda: run.reached("train", 1, since) and plays_episodes(url), "an open episode", 0.05)
    run.service(launcher).kill()
    output, _ = launcher.communicate(timeout=START_DEADLINE_S)
    assert launcher.returncode == exits.FINISHED, output
    assert "ended with code -9" in output and "Started again (1 of 3 times)" in output
    assert sum(step["episodes_rebuilt"] for step in run.lines("seal_log/steps.jsonl")) >= 1


def test_a_stop_in_rollouts_adds_no_prompts_to_those_under_way():
    """The step that goes on trains the prompts that it had drawn when it was stopped."""
    rarely = "trainer.save_freq=100", "trainer.test_freq=-1", "trainer.total_training_steps=3"
    # So slow that its rollouts, which began before the first update, are under way after it.
    run = Run(f"test-async-{uuid4().hex[:8]}", (*SMALL, *rarely), ("env", "BFCL_DELAY_SECONDS=1"))
    drawn = []
    try:
        for launcher, code in ((reach(run, 2), exits.TERMINATED), (None, exits.FINISHED)):
            if launcher is not None:
                launcher.send_signal(signal.SIGTERM)
            launcher = launcher or run.start()
            output, _ = launcher.communicate(timeout=START_DEADLINE_S)
            assert launcher.returncode == code and run.saved == (1 if code else 3), output
            data = torch.load(run.folder / f"checkpoints/global_step_{run.saved}/data.pt", weights_only=False)
            drawn.append(data["_num_yielded"])
    finally:
        shutil.rmtree(run.folder, ignore_errors=True)
        shutil.rmtree(HOME / "launcher_record" / run.name, ignore_errors=True)
    assert drawn[1] - drawn[0] == PROMPTS, "of the two steps, the first one had drawn its prompts"


def test_every_prompt_was_trained_once_with_the_omega_that_it_was_drawn_with(run):
    assert run.logged == list(range(1, STEPS + 1))
    assert sorted(path.stem for path in run.folder.glob("validation_log/*.jsonl")) == ["2", "4", "6"]
    drawn_with = {0: None}
    groups = Counter()
    for step in run.lines("seal_log/steps.jsonl"):
        drawn_with[step["step"]] = step["omega"]["version"]
        rows = [json.loads(line) for line in (run.folder / f"seal_log/trajectories/{step['step']}.jsonl").open()]
        assert len(rows) == PROMPTS * SAMPLES
        assert {row["infra"] for row in rows} == {None}
        for row in rows:
            groups[row["task_id"]] += 1
            assert row["drawn"] <= step["step"] and row["weights"][1] <= step["step"] - 1
            assert row["omega_version"] == drawn_with[row["drawn"]]
            # One seed each: a prompt has each of its samples once.
        assert Counter((row["task_id"], row["sample"]) for row in rows).most_common(1)[0][1] == 1
    # The tasks of one epoch are drawn without replacement, so one that is trained twice would show.
    assert set(groups.values()) == {SAMPLES} and len(groups) == STEPS * PROMPTS
    with contextlib.suppress(FileNotFoundError):
        assert not list((run.folder / "checkpoints" / ".saving").iterdir())
    assert any(step["staleness"]["max"] > 0 for step in run.lines("seal_log/steps.jsonl"))
