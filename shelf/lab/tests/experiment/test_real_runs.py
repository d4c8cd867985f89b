"""Two tiny runs of the real launcher, with the experiment killed in the middle."""

import shutil
import signal
import subprocess
import sys
import time
from uuid import uuid4

import pytest

from seal.system import exits
from seal.system.paths import HOME
from shelf.lab.experiment.matrix import Cell, Experiment
from shelf.lab.experiment.records import read_results

DEADLINE_S = 900


@pytest.fixture
def experiment(tmp_path):
    name = f"test-{uuid4().hex[:8]}"
    path = tmp_path / "tiny.yaml"
    path.write_text(
        f"name: {name}\nquestion: Does it run?\nstopping: both runs, once\nrecipe: exp/quickstart.yaml\n"
        # Killed in the second of three steps, it ends with a checkpoint and is resumed for the third.
        "overrides:\n"
        "  - data.train_batch_size=4\n  - actor_rollout_ref.actor.ppo_mini_batch_size=4\n"
        "  - actor_rollout_ref.rollout.n=4\n  - trainer.total_training_steps=3\n  - trainer.test_freq=3\n"
        "  - seal.data.withdrawal=null\n  - trainer.save_freq=1\n  - trainer.logger=[console]\n"
        '  - "seal.data.val=[{split: eval, categories: [base], prefix_turns: [1], limit: 6}]"\n'
        "seeds: [0]\ncontrol: vanilla\narms:\n  vanilla: {overrides: [ablation=vanilla]}\n  seal:\n"
        "primary: {set: base@1, metric: turns}\nkeep: {trajectories: true}\n"
    )
    made = Experiment.read(path)
    yield made
    shutil.rmtree(made.folder, ignore_errors=True)
    for cell in made.cells:
        shutil.rmtree(HOME / "launcher_record" / made.run_name(cell), ignore_errors=True)


def seal(*arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "seal.cli", *arguments]
    return subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
def test_real_runs_are_resumed_collected_and_compared(experiment):
    file = str(experiment.source)
    first = seal("experiment", "run", file)
    vanilla = experiment.run(Cell("vanilla", 0))
    deadline = time.monotonic() + DEADLINE_S
    while not vanilla.steps.exists():
        assert first.poll() is None and time.monotonic() < deadline, first.stdout.read()
        time.sleep(0.2)
    first.send_signal(signal.SIGKILL)
    first.communicate()

    again = seal("experiment", "run", file)
    said, _ = again.communicate(timeout=2 * DEADLINE_S)
    assert again.returncode == exits.FINISHED, said
    results, bad = read_results(experiment.results)
    assert not bad and [each.arm for each in results] == ["vanilla", "seal"]
    for result in results:
        assert [step.step for step in result.steps] == [1, 2, 3] and result.commit and result.inputs
        assert {each.step for each in result.validations} == {0, 3} and len(result.validations[0].tasks) == 6
        assert result.checkpoint_bytes > 1_000_000 and result.leak is None
    assert [step.w for step in results[0].steps] == [1.0] * 3
    assert not vanilla.checkpoints.exists() and vanilla.trajectories.exists() and vanilla.validations.exists()
    assert "Resuming from" in vanilla.train_log.read_text(), "the killed run goes on from its checkpoint"

    verify = seal("verify", str(experiment.run(Cell("seal", 0)).path))
    said, _ = verify.communicate(timeout=600)
    assert verify.returncode == 0, said

    report = seal("experiment", "report", file)
    said, _ = report.communicate(timeout=300)
    assert report.returncode == 0 and "seal - vanilla" in said
    assert "With one seed an interval covers the choice of tasks only" in " ".join(said.split())
