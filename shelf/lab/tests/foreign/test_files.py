"""Files of other programs: what a reader does not understand is left out and named, and all else is read."""

import json
import re

import pytest

from seal.cli.main import execute, load
from seal.records.trajectory import TrajectoryRecord

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "cents": {"type": "integer"}},
    "required": ["id", "cents"],
}
TOOL = {"type": "function", "function": {"name": "refund", "parameters": SCHEMA}}
ASKED = {"role": "user", "content": "Refund order 7."}
WRONG = {"id": "7", "cents": "all"}
RIGHT = {"id": "7", "cents": 5}


def said(**more) -> dict:
    return {"role": "assistant", "content": None, **more}


def called(arguments: dict) -> dict:
    made = {"id": "c", "type": "function", "function": {"name": "refund", "arguments": json.dumps(arguments)}}
    return said(tool_calls=[made])


def row(*messages: dict, **more) -> dict:
    return {"task_id": "t", "reward": 0.0, "tools": [TOOL], "messages": list(messages), **more}


WHOLE = (ASKED, called(WRONG), {"role": "tool", "tool_call_id": "c", "content": "no"}, said(content="Done."))


def diagnose(tmp_path, *paths, code=0) -> list[TrajectoryRecord]:
    arguments = ["rollouts", *map(str, paths), "--out", str(tmp_path / "out"), "--processes", "1"]
    assert execute(load("diagnose"), arguments, "seal diagnose") == code
    log = tmp_path / "out" / "validation_log" / "0.jsonl"
    return [TrajectoryRecord.from_json(line) for line in log.read_text().splitlines()] if code < 2 else []


def written(tmp_path, *rows) -> str:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in rows))
    return str(file)


def test_what_is_left_out_is_named_once_for_each_reason_and_file_with_its_line(tmp_path, capsys):
    rows = [row(*WHOLE)] * 99 + [row()] + [row(*WHOLE, reward="much")] * 3
    assert len(diagnose(tmp_path, written(tmp_path, *rows), code=1)) == 99
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Left out")]
    assert len(lines) == 2 and "rows.jsonl:100: " in lines[0] and "rows.jsonl:101 and 2 more lines: " in lines[1]


def test_a_folder_of_files_with_one_fault_is_one_sentence(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    for number in range(40):
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps({"messages": []} if number else row(*WHOLE)))
    assert len(diagnose(tmp_path, tmp_path / "in", code=1)) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Left out")]
    assert re.search(r"in/1\.json:1 and 38 more lines of 39 files", line)


def test_labels_are_exact_only_where_one_is_the_benchmark_s_and_a_pass_says_whose_word_it_is(tmp_path, capsys):
    (record,) = diagnose(tmp_path, written(tmp_path, row(ASKED, called(RIGHT), reward=1.0)))
    assert record.passed and record.diagnosis[0]["label"] == "pass"
    assert "reward of 1 was read" in record.diagnosis[0]["reason"] and "labels are exact" not in capsys.readouterr().out


@pytest.mark.parametrize("whole", [False, True])
def test_a_number_of_too_many_digits_leaves_out_its_row_alone(tmp_path, capsys, whole):
    huge = json.dumps(row(*WHOLE, seen=0)).replace('"seen": 0', '"seen": ' + "7" * 5000)
    rows = [json.dumps(row(*WHOLE)), json.dumps(row(*WHOLE)), huge]
    file = tmp_path / "rows.jsonl"
    file.write_text(f"[{', '.join(rows)}]" if whole else "\n".join(rows) + "\n")
    assert len(diagnose(tmp_path, file, code=1)) == 2 and "rows.jsonl:3: " in capsys.readouterr().out
