"""The cost of a training, where its logs state it."""

import json

import pytest

from seal.records.folder import RunFolder
from seal.records.step import StepRecord
from shelf.view.report.run import logged_steps, training_cost


@pytest.fixture
def run(tmp_path):
    """Three steps of 4 rollouts in 30 s, on 2 devices; a second launch after step 2 has 4."""
    run = RunFolder(tmp_path)
    run.steps.parent.mkdir(parents=True)
    figures = {"trajectories": 4, "tokens": {"in": 1000, "out": 100}, "seconds": {"step": 30.0}}
    run.steps.write_text("".join(json.dumps(StepRecord(step, **figures).line()) + "\n" for step in (1, 2, 3)))
    trainers = [(0, 2), (2, 4)]
    launches = [
        {"step": step, "config": {"trainer": {"n_gpus_per_node": devices, "nnodes": 1, "device": "cuda"}}}
        for step, devices in trainers
    ]
    run.launches.write_text("".join(json.dumps(launch) + "\n" for launch in launches))
    return run


def test_the_cost_adds_up_over_steps_and_launches(run):
    whole = {"rollouts": "12", "tokens in": "3,000", "tokens out": "300", "wall time": "2 min"}
    assert dict(training_cost(run, 3)) == whole | {"cuda hours": f"{(120 + 4 * 30) / 3600:.3g}"}
    assert dict(training_cost(run, 2))["cuda hours"] == f"{120 / 3600:.3g}"
    run.launches.write_text(run.launches.read_text().replace(': 2, "nnodes"', ': 1, "nnodes"'))
    assert "cuda hours" not in dict(training_cost(run, 2))  # those of one device are the wall time


def test_the_step_of_the_checkpoint_where_a_run_began_is_another_runs(run):
    run.launches.write_text(run.launches.read_text().splitlines()[1] + "\n")
    run.steps.write_text("".join(run.steps.read_text().splitlines(keepends=True)[1:]))
    assert [step.step for step in logged_steps(run)[0]] == [3]
    assert dict(training_cost(run, 3))["cuda hours"] == f"{4 * 30 / 3600:.3g}"
    assert dict(training_cost(run, 3))["rollouts"] == "4"


def test_what_one_step_does_not_say_is_unknown_for_all(run):
    old = StepRecord(4, trajectories=8, seconds={"step": 2.0}).line()
    del old["tokens"]
    with run.steps.open("a") as file:
        file.write(json.dumps(old) + "\n")
    run.launches.unlink()
    assert training_cost(run, 4) == [("rollouts", "20"), ("wall time", "2 min")]
    assert training_cost(RunFolder(run.path / "none"), 4) == []
