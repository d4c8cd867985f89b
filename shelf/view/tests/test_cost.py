"""The cost of a training, where its logs state it."""

import json

import pytest

from seal.records.folder import RunFolder
from seal.records.step import StepRecord
from seal.training.log import RunLog
from shelf.view.report.run import start_seconds, training_cost


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


def test_what_one_step_does_not_say_is_unknown_for_all(run):
    old = StepRecord(4, trajectories=8, seconds={"step": 2.0}).line()
    del old["tokens"]
    with run.steps.open("a") as file:
        file.write(json.dumps(old) + "\n")
    run.launches.unlink()
    assert training_cost(run, 4) == [("rollouts", "20"), ("wall time", "2 min")]
    assert training_cost(RunFolder(run.path / "none"), 4) == []


def test_the_share_of_a_start_is_that_of_all_launches_that_got_past_it(tmp_path):
    run = RunFolder(tmp_path)
    log = RunLog(run.path)
    for command, ready, last in ((100, 160, 400), (1000, None, None), (2000, 2040, 2100)):
        log.start("checks", at=command)
        for at in filter(None, (ready,)):
            log.start("ready", at=at)
            with run.stages.open("a") as file:
                file.writelines(f'{{"stage": "train", "step": 1, "of": 2, "time": {time}}}\n' for time in (at, last))
    assert start_seconds(run) == (100, 400)
    assert start_seconds(RunFolder(tmp_path / "none")) is None
