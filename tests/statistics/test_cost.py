"""What rollouts and steps cost, where logs say it, and what it took to reach a score."""

import json

import pytest

from seal.cli.stats import app
from seal.records.folder import RunFolder
from seal.records.step import StepRecord, read_steps
from seal.records.trajectory import TrajectoryRecord, count_tokens, read_line
from seal.statistics.cost import Cost, Devices, of_rollouts, of_steps
from tests.support.commands import run as command


def rollout(number: int, began: float, seconds: float, score: float = 0.0, step: int = 0, **more) -> TrajectoryRecord:
    known = {"tokens": 10, "tokens_in": 100, "labels": ("pass",), "turns": 1, "turns_passed": 1, **more}
    task = f"multi_turn_base_{number}"
    return TrajectoryRecord(task, "base", "base", "eval", 0, score, began=began, seconds=seconds, step=step, **known)


def test_wall_time_counts_what_overlaps_once_and_gaps_not_at_all():
    records = [rollout(0, 100, 10), rollout(1, 105, 10), rollout(2, 106, 1), rollout(3, 500, 5)]
    assert of_rollouts(records, devices=4) == Cost(4, 400, 40, 20.0, 80.0)
    assert of_rollouts(records, devices=None) == Cost(4, 400, 40, 20.0, None)
    assert of_rollouts(records, 4).price(2.5) == pytest.approx(2.5 * 80 / 3600)


def test_tokens_in_follow_from_the_spans_where_no_line_says_them():
    record = rollout(0, 1, 1, tokens_in=None, prompt_tokens=50, spans=((0, 0, 10), (0, 20, 30)))
    assert record.prompted == 50 + 70
    old = rollout(1, 0, 1, tokens_in=None)
    assert old.prompted is None
    assert count_tokens([record, old]) == {"out": 20}
    lost = rollout(2, 1, 1, tokens_in=None, tokens=0, infra="engine")
    assert count_tokens([record, lost]) == {"in": 120, "out": 10}


def test_unknown_stays_unknown_in_a_sum():
    known = Cost(1, 5, 6, 7.0, 7.0)
    assert known + Cost(2, None, 1, 1.0, None) == Cost(3, None, 7, 8.0, None)


def test_lines_without_the_new_fields_are_read(tmp_path):
    line = rollout(0, 0, 1, tokens_in=None).line()
    assert "tokens_in" not in line and read_line(line)[0].tokens_in is None
    step = StepRecord(3, trajectories=8, seconds={"step": 2.0}).line()
    del step["tokens"]
    (tmp_path / "steps.jsonl").write_text(json.dumps(step) + "\n")
    (read,), bad = read_steps(tmp_path / "steps.jsonl")
    assert not bad and of_steps([read], Devices(((0, 2),))) == Cost(8, None, None, 2.0, 4.0)


@pytest.fixture
def write_run(tmp_path):
    def write(name: str, rates: dict[int, float], devices: int = 2):
        """A run of 4 rollouts in 30 s per step, whose validations pass these shares of ten tasks."""
        run = RunFolder(tmp_path / name)
        run.trajectories.mkdir(parents=True)
        run.validations.mkdir()
        steps = [
            StepRecord(step, trajectories=4, tokens={"in": 1000, "out": 100}, seconds={"step": 30.0})
            for step in range(1, max(rates) + 1)
        ]
        run.steps.write_text("".join(json.dumps(step.line()) + "\n" for step in steps))
        trainer = {"n_gpus_per_node": devices, "nnodes": 1, "device": "cuda"}
        run.launches.write_text(json.dumps({"step": 0, "config": {"trainer": trainer}}) + "\n")
        for step, rate in rates.items():
            lines = [rollout(i, 10.0 * i + 1, 10.0, float(i < 10 * rate), step).to_json() for i in range(10)]
            (run.validations / f"{step}.jsonl").write_text("\n".join(lines) + "\n")
        return str(run.path)

    return write


def test_stats_put_the_cost_beside_the_rates(write_run, tmp_path, capsys):
    run = write_run("a", {0: 0.1, 10: 0.4})
    assert command(app, ["--val-dir", run, "--price", "3", "--json", tmp_path / "x.json"]) == 0
    out = capsys.readouterr().out
    assert "Cost" in out and "training to step 10" in out and "cuda hours" in out and "price" in out
    costs = {(each["what"], each["step"]): each for each in json.loads((tmp_path / "x.json").read_text())["costs"]}
    training, validation = costs["training", 10], costs["validation", 10]
    assert (training["rollouts"], training["tokens_in"], training["tokens_out"]) == (40, 10_000, 1000)
    assert training["device_hours"] == pytest.approx(300 * 2 / 3600)
    assert training["price"] == pytest.approx(3 * 300 * 2 / 3600)
    assert (validation["rollouts"], validation["seconds"]) == (10, 100.0)


def test_the_cost_of_a_score_is_that_of_the_training_before_it(write_run, tmp_path, capsys):
    slow, fast = write_run("slow", {0: 0.1, 10: 0.3, 20: 0.6}), write_run("fast", {0: 0.1, 10: 0.5, 20: 0.4})
    never = write_run("never", {0: 0.1, 10: 0.2})
    arguments = ["--compare", slow, fast, never, "--reach", "0.5", "--devices", "4", "--json", tmp_path / "x.json"]
    assert command(app, arguments) == 0
    found = {each["run"]: each for each in json.loads((tmp_path / "x.json").read_text())["reached"]}
    assert [found[run]["step"] for run in (slow, fast, never)] == [20, 10, None]
    assert [found[run]["rollouts"] for run in (slow, fast, never)] == [80, 40, None]
    assert found[slow]["device_hours"] == pytest.approx(600 * 4 / 3600)
    assert found[never]["best_pass_rate"] == pytest.approx(0.2) and found[never]["tokens_in"] is None
    out = capsys.readouterr().out
    assert "first reaches 50.0 %" in out and "never" in out


def test_a_score_that_is_none_and_logs_without_costs(write_run, tmp_path, capsys):
    run = write_run("a", {0: 0.1})
    assert command(app, ["--val-dir", run, "--reach", "50"]) == 2
    assert "--reach is 50: give a share from 0 to 1" in capsys.readouterr().err
    folder = tmp_path / "release" / "validation_log"
    folder.mkdir(parents=True)
    line = {"input": "", "output": "", "score": 1.0, "step": 0, "reward": 0, "task_id": "multi_turn_base_1"}
    (folder / "0.jsonl").write_text(json.dumps(line | {"data_source": "bfcl"}) + "\n")
    command(app, ["--val-dir", folder.parent])
    assert "Cost" not in capsys.readouterr().out
