"""A recipe's data block selects tasks, and says in one sentence why it cannot."""

import json

import pytest

from env_service.environments.bfcl.catalog import load_tasks
from seal.cli.data import app
from seal.data.parquet import read_rows
from seal.data.selection import Selection, read_task_file, selected_rows, write_parquet
from tests.support.commands import run


def ids(config):
    return [row.task_id for row in selected_rows(Selection.read(config))]


def test_an_empty_block_is_the_whole_training_side():
    assert len(ids({})) == 400


def test_filters_narrow_together():
    tasks = load_tasks()
    chosen = ids({"categories": ["base", "miss_func"], "classes": "TradingBot", "min_turns": 3, "max_turns": 4})
    assert chosen
    for task in chosen:
        assert tasks[task].category in ("base", "miss_func")
        assert "TradingBot" in tasks[task].involved_classes
        assert 3 <= len(tasks[task].users) <= 4


def test_prefixes_are_tasks_of_their_own_with_unique_indices(tmp_path):
    selection = Selection.read({"categories": "base", "prefix_turns": [1, 2]})
    count = write_parquet(selection, tmp_path / "x.parquet")
    rows = read_rows(tmp_path / "x.parquet")
    assert count == len(rows) == len(set(rows))
    assert {row.data_source for row in rows} == {"base@1", "base@2"}
    tasks = load_tasks()
    assert all(row.turns <= len(tasks[row.task_id].users) for row in rows)
    assert sum(row.turns == 1 for row in rows) == 100


def test_evaluation_side_and_even_limit():
    rows = selected_rows(Selection(split="eval", limit=5))
    assert [row.data_source for row in rows] == ["base"] * 5 + ["miss_func"] * 5 + ["miss_param"] * 5 + [
        "long_context"
    ] * 5
    assert {row.split for row in rows} == {"eval"}
    scenarios = [row.scenario for row in rows[:5]]
    assert scenarios == sorted(scenarios) and scenarios[-1] - scenarios[0] > 100


def test_task_files_of_every_form(tmp_path):
    (tmp_path / "a.txt").write_text("multi_turn_base_0  # the first\n\nmulti_turn_base_2\n")
    (tmp_path / "b.json").write_text(json.dumps(["multi_turn_base_0", "multi_turn_base_2"]))
    (tmp_path / "c.json").write_text(json.dumps({"tasks": [{"task_id": "multi_turn_base_0", "turns": 1}]}))
    assert ids({"task_file": str(tmp_path / "a.txt")}) == ids({"task_file": str(tmp_path / "b.json")})
    assert read_task_file(tmp_path / "c.json") == (("multi_turn_base_0", 1),)
    assert ids({"task_file": str(tmp_path / "c.json"), "prefix_turns": 1}) == ["multi_turn_base_0"]
    with pytest.raises(ValueError, match="set prefix_turns to match"):
        ids({"task_file": str(tmp_path / "c.json")})


def test_one_failure_type_of_an_earlier_run(tmp_path):
    log = tmp_path / "seal_log" / "trajectories"
    log.mkdir(parents=True)
    first = [{"task_id": "multi_turn_base_0", "labels": ["state_mismatch"], "score": 0}]
    second = [
        {"task_id": "multi_turn_base_0", "labels": ["pass", "missing_tool_call", "state_mismatch"], "score": 0},
        {"task_id": "multi_turn_base_2", "labels": ["pass", "pass"], "score": 1},
    ]
    (log / "2.jsonl").write_text("".join(json.dumps(line) + "\n" for line in first))
    (log / "10.jsonl").write_text("".join(json.dumps(line) + "\n" for line in second))
    chosen = {"run": str(tmp_path), "label": "missing_tool_call"}
    assert ids({"labels_from": [chosen]}) == ["multi_turn_base_0"]
    assert ids({"labels_from": {**chosen, "label": "pass"}}) == ["multi_turn_base_2"]
    with pytest.raises(ValueError, match="the labels there are missing_tool_call, pass"):
        ids({"labels_from": {**chosen, "label": "state_mismatch"}})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"catgories": ["base"]}, "did you mean categories?"),
        ({"categories": ["basic"]}, "must be one of base, miss_func"),
        ({"classes": ["Trader"]}, "GorillaFileSystem"),
        ({"scenarios": [200]}, "from 0 to 199"),
        ({"scenarios": [1]}, "leaves no task"),
        ({"prefix_turns": 0}, "at least 1"),
        ({"prefix_turns": 1.5}, "at least 1"),
        ({"limit": "many"}, "at least 1"),
        ({"split": "val"}, "must be one of train, eval"),
        ({"task_file": "nowhere.json"}, "does not exist"),
        ({"labels_from": ["x"]}, "mapping of settings"),
        ({"labels_from": {"run": "nowhere", "label": "pass"}}, "name a run"),
    ],
)
def test_bad_blocks_are_one_sentence(config, said):
    with pytest.raises(ValueError, match=said) as caught:
        ids(config)
    assert "\n" not in str(caught.value)


def test_the_command_writes_what_the_block_selects(tmp_path, capsys):
    out = tmp_path / "x.parquet"
    assert (
        run(app, ["select", "--split", "train", "--prefix-turns", "1", "--categories", "base", "--out", str(out)]) == 0
    )
    assert "100 rows" in capsys.readouterr().out
    assert read_rows(out) == selected_rows(Selection(categories=("base",), prefix_turns=(1,)))
    assert run(app, ["select", "--classes", "Nope", "--out", str(out)]) == 2
    assert "seal data select: classes" in capsys.readouterr().err
