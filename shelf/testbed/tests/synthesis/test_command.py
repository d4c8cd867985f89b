"""`seal tasks`: a file is made and checked."""

import json

import pytest

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.splits import side_of
from env_service.environments.bfcl.task_file import MadeTask, read_task_file, write_task_file
from shelf.testbed.cli.tasks import app
from tests.support.commands import run


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    assert run(app, ["synthesise", "--count", "30", "--seed", "0", "--out", str(path)]) == 0
    return path


def test_a_made_file_is_checked(file, capsys):
    assert run(app, ["check", str(file)]) == 0
    said = capsys.readouterr().out
    assert "30 tasks (train base" in said and "the verifier passes every reference" in said


def test_an_empty_and_a_missing_file_are_refused(tmp_path, capsys):
    (tmp_path / "empty.jsonl").touch()
    assert run(app, ["check", str(tmp_path / "empty.jsonl")]) == 1
    assert run(app, ["check", str(tmp_path / "none.jsonl")]) == 2
    assert "does not exist: make it with seal tasks synthesise" in capsys.readouterr().err


def changed(task: MadeTask, **update) -> MadeTask:
    return task.model_copy(update=update).named()


def test_check_names_everything_that_is_wrong(file, tmp_path, capsys):
    tasks = list(read_task_file(file))
    evaluation = next(task for task in load_tasks().values() if side_of(task.id) == "eval")
    forged = tasks[0].model_copy(update={"users": ("Something else.", *tasks[0].users[1:])})
    copied = changed(tasks[1], users=(evaluation.users[0], *tasks[1].users[1:]))
    idle = changed(tasks[2], reference=tuple(() for _ in tasks[2].users), demonstration=())
    reworded = changed(tasks[3], hidden=())
    bad = tmp_path / "bad.jsonl"
    write_task_file([forged, copied, idle, tasks[3], reworded, tasks[4], tasks[4]], bad)
    with bad.open("a") as stream:
        stream.write(json.dumps({"format": 2}) + "\n")
    assert run(app, ["check", str(bad)]) == 1
    problems = capsys.readouterr().err
    assert "is not the id of its content" in problems
    assert f"{copied.id} has a message of multi_turn_" in problems
    assert "asks for no call" in problems
    assert f"{tasks[4].id} occurs twice" in problems
    assert "bad.jsonl:8" in problems
    if reworded.id != tasks[3].id:
        assert f"{reworded.id} has the messages of {tasks[3].id}" in problems


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ({"reference": [["rm_rf()"]]}, "not a call of a documented tool"),
        ({"users": []}, "at least 1 item"),
        ({"withheld": {"9": ["get_ticket"]}}, "withheld reveals tools in turn 9"),
        ({"classes": ["Cooking"]}, "classes has 'Cooking'"),
        ({"hidden": ["fly"]}, "fly is a tool of none of its classes"),
        ({"format": 2}, "format is 2"),
    ],
)
def test_a_line_that_is_not_a_task_is_refused(file, tmp_path, line, sentence):
    whole = json.loads(file.read_text().splitlines()[0])
    whole |= {"users": whole["users"][:1], "reference": [[]], "demonstration": []} | line
    (tmp_path / "x.jsonl").write_text(json.dumps(whole) + "\n")
    with pytest.raises(ValueError, match=sentence):
        read_task_file(tmp_path / "x.jsonl")
