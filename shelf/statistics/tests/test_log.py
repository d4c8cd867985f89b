"""Lines with further fields and of the release are read, and one that cannot be used is named."""

import json
from dataclasses import replace

import pytest

from seal.records.trajectory import TrajectoryRecord
from shelf.statistics.comparison import Side, compare
from shelf.statistics.log import read_line, read_log


def test_a_line_with_further_fields_is_read():
    record = TrajectoryRecord("multi_turn_base_0", "base", "base", "train", 0, 1.0, step=3)
    line = record.line() | {"inclusion": 4.0, "span_weights": [[0, 3, 1.5]], "unknown": 1}
    assert read_line(line)[0] == record


@pytest.mark.parametrize(("before", "now"), [(None, None), ("", "shown"), ("*", "hidden"), ("recover", "recover")])
def test_the_sides_of_a_withdrawal_are_read_in_logs_of_each_format(before, now):
    line = TrajectoryRecord("multi_turn_base_0", "base", "base", "train", 0, 1.0, step=3, withdrawal=now).line()
    earlier = {name: value for name, value in line.items() if name != "withdrawal"} | {"withdrawn": before, "format": 2}
    for each in (line, earlier):
        assert read_line(each)[0].withdrawal == TrajectoryRecord.from_line(each).withdrawal == now


def test_a_line_whose_dialogue_is_no_list_is_a_bad_line(tmp_path):
    line = TrajectoryRecord("multi_turn_base_0", "base", "base", "eval", 0, 1.0, step=0).line()
    path = tmp_path / "0.jsonl"
    path.write_text("".join(json.dumps(line | each) + "\n" for each in ({}, {"input": 5}, {"output": True})))
    log = read_log(path)
    assert len(log.lines) == 1 and [bad.line for bad in log.bad] == [2, 3]


def test_a_line_of_the_release_has_its_texts_and_no_turns(tmp_path):
    line = {"input": "question", "output": "answer", "score": 1.0, "reward": 0.5, "step": 10}
    line |= {"task_id": "multi_turn_miss_func_3", "data_source": "bfcl"}
    path = tmp_path / "10.jsonl"
    path.write_text((json.dumps(line) + "\n") * 2)
    first, second = read_log(path).without_bad()
    assert [message["content"] for message in first.messages] == ["question", "answer"]
    assert (first.data_source, first.passed, first.turns) == ("miss_func", True, 0)
    assert (first.sample, second.sample) == (0, 1)


def test_two_prompts_of_a_step_may_have_the_same_task(tmp_path):
    record, path = TrajectoryRecord("multi_turn_base_0", "base", "base", "train", 0, 1.0, step=3), tmp_path / "3.jsonl"
    lines = [replace(record, group=group, sample=sample).line() for group in (0, 1) for sample in (0, 1)]
    path.write_text("".join(json.dumps(line) + "\n" for line in (*lines, lines[0])))
    log = read_log(path)
    assert len(log.lines) == 4 and [bad.line for bad in log.bad] == [5]


def test_two_environments_may_name_their_tasks_alike(tmp_path):
    names, path = ("one/main", "two/main"), tmp_path / "0.jsonl"
    lines = [TrajectoryRecord("eval-0", name, name, "eval", 0, float(n), step=0).line() for n, name in enumerate(names)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    records = read_log(path).without_bad()
    assert [record.category for record in records] == list(names)
    rows = compare(Side("a", (records,)), Side("b", (tuple(replace(each, score=1.0) for each in records),)))
    *each, average = rows
    assert [(row.name, row.pass_rate.difference) for row in each] == [("one/main", 1.0), ("two/main", 0.0)]
    assert average.is_average and (average.pass_rate.difference, average.unpaired) == (0.5, 0)


DAMAGES = (
    {"format": 99}, {"spans": [[0, 1]]}, {"turns": "many"}, {"seconds": float("inf")}, {"turns": 10**400},
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_line_with_a_wrong_value_is_a_bad_line_that_names_it(tmp_path, damage):
    path = tmp_path / "0.jsonl"
    line = TrajectoryRecord("multi_turn_base_0", "base", "base", "eval", 0, 1.0, step=0).line()
    path.write_text(json.dumps(line) + "\n" + json.dumps(line | {"sample": 1} | damage) + "\n")
    log = read_log(path)
    assert len(log.lines) == len(log.bad) == 1 and next(iter(damage)) in log.bad[0].problem
    with pytest.raises(ValueError, match=r"0\.jsonl:2"):
        log.without_bad()
