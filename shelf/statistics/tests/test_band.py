"""The band keeps the tasks that are solved sometimes, on the training side only."""

import json

import pytest

from seal.data.selection import Selection, selected_rows
from shelf.statistics.cli.stats import app
from tests.support.commands import run


def write_log(path, rates, samples=4, source="base@1", step=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        for task, passed in rates.items():
            for sample in range(samples):
                line = {"task_id": task, "data_source": source, "sample": sample, "step": step, "data_hash": "d"}
                stream.write(json.dumps({**line, "score": float(sample < passed)}) + "\n")


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "validation_log" / "0.jsonl"
    write_log(path, {"multi_turn_base_0": 0, "multi_turn_base_2": 1, "multi_turn_base_3": 4, "multi_turn_base_5": 3})
    return path


def test_only_tasks_with_spread_are_kept_and_can_be_trained_on(log, tmp_path, capsys):
    out = tmp_path / "band.json"
    assert run(app, [str(tmp_path), "--band", str(out)]) == 0
    assert str(out) in capsys.readouterr().out.replace("\n", "")
    band = json.loads(out.read_text())
    assert [(task["task_id"], task["turns"], task["rate"], task["n"]) for task in band["tasks"]] == [
        ("multi_turn_base_2", 1, 0.25, 4),
        ("multi_turn_base_5", 1, 0.75, 4),
    ]
    rows = selected_rows(Selection(task_file=str(out), prefix_turns=(1,)))
    assert [row.task_id for row in rows] == ["multi_turn_base_2", "multi_turn_base_5"]


@pytest.mark.parametrize(
    ("rates", "samples", "said"),
    [
        ({"multi_turn_base_0": 1, "multi_turn_base_1": 2}, 4, "multi_turn_base_1 belongs to the evaluation side"),
        ({"multi_turn_base_0": 1}, 1, "None of the 1 tasks"),
        ({"multi_turn_base_0": 0}, 4, "take more of them"),
    ],
)
def test_what_makes_no_band_is_refused(tmp_path, capsys, rates, samples, said):
    write_log(tmp_path / "validation_log" / "0.jsonl", rates, samples)
    assert run(app, [str(tmp_path), "--band", str(tmp_path / "b.json")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "b.json").exists()


def test_a_band_is_of_one_validation(log, tmp_path):
    rates = {"multi_turn_base_0": 2, "multi_turn_base_2": 4, "multi_turn_base_3": 4, "multi_turn_base_5": 0}
    write_log(log.with_name("50.jsonl"), rates, step=50)
    for step, tasks in ((), ["multi_turn_base_0"]), (("--step", "0"), ["multi_turn_base_2", "multi_turn_base_5"]):
        assert run(app, [str(tmp_path), *step, "--band", str(tmp_path / "b.json")]) == 0
        assert [task["task_id"] for task in json.loads((tmp_path / "b.json").read_text())["tasks"]] == tasks


def test_a_cut_log_is_refused_with_its_line(log, tmp_path, capsys):
    log.write_bytes(log.read_bytes()[:-20])
    assert run(app, [str(tmp_path), "--band", str(tmp_path / "b.json")]) == 2
    assert "0.jsonl:16" in capsys.readouterr().err
