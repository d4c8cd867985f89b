"""Stored rollouts judged again: nothing changes on its own, and what changes is found with its reason."""

import json
import shutil

import pytest

from seal.cli.main import execute, load
from tests.support.one_service import one_service
from tests.support.played_run import SMALL, write_run


@pytest.fixture(scope="module", autouse=True)
def service():
    with one_service():
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "a", *SMALL, steps=2, validations=(0, 2), seed=4, lost=0.2)


@pytest.fixture
def copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "copy")


def seal_rescore(*arguments) -> int:
    return execute(load("rescore"), [*map(str, arguments), "--processes", "1"], "seal rescore")


def changes(log, tmp_path, *options, code=0):
    path = tmp_path / "found.json"
    assert seal_rescore(log, "--json", path, *options) == code
    return json.loads(path.read_text())


def lines_of(path):
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def edit(path, change) -> None:
    """Change the first line that `change` returns something for."""
    lines = lines_of(path)
    number, new = next((i, new) for i, line in enumerate(lines) if (new := change(line)))
    lines[number] = new
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_present_checker_judges_a_run_as_it_was_judged(run, tmp_path, capsys):
    validations = changes(run, tmp_path)
    training = changes(run, tmp_path, "--training")
    assert [each["step"] for each in validations] == [0, 2] and [each["step"] for each in training] == [1, 2]
    for found in (*validations, *training):
        lost = [each for each in found["left_out"] if "engine_timeout" in each["problem"]]
        assert not found["changed"] and found["replayed"] == found["rollouts"] - len(lost) > 0
    assert any(found["left_out"] for found in training)
    assert "Every verdict, label and reward is the same." in capsys.readouterr().out


def _harsher(line):
    """The line as a checker would have judged it that failed the first turn."""
    if line["score"] != 1:
        return None
    line["evidence"][0]["state_match"] = False
    labels = ["state_mismatch", *line["labels"][1:]]
    return line | {"score": 0.0, "labels": labels, "turns_passed": line["turns_passed"] - 1}


def test_a_verdict_that_changed_is_listed_with_its_reason_and_paired(copy, tmp_path, capsys):
    edit(copy / "validation_log" / "0.jsonl", _harsher)
    (found,) = changes(copy, tmp_path, "--step", "0")
    (change,) = found["changed"]
    assert change["passed"] == [False, True] and change["score"] == [0.0, 1.0]
    assert change["reason"] == {"part": "checker", "text": "turn 0: state_match was False and is True"}
    average = next(row for row in found["comparisons"] if row["category"].startswith("average@"))
    assert (average["pass_rate_gained"], average["pass_rate_lost"]) == (1, 0) and average["pass_rate_low"] >= 0
    out = capsys.readouterr().out
    assert change["task_id"] in out and "the checker compares a turn differently" in out


def test_a_tool_that_answers_differently_is_the_reason(copy, tmp_path):
    def other_result(line):
        calls = [call for turn in line["evidence"] for action in turn["actions"] for call in action["calls"]]
        if not calls or line["score"] != 1:
            return None
        calls[0]["result"] = "something else"
        return line | {"score": 0.0}

    edit(copy / "validation_log" / "2.jsonl", other_result)
    (found,) = changes(copy / "validation_log" / "2.jsonl", tmp_path)
    assert found["changed"][0]["reason"]["part"] == "tools"
    assert "result was 'something else'" in found["changed"][0]["reason"]["text"]


def test_another_reward_and_taxonomy_give_what_a_run_with_them_gives(run, tmp_path):
    """The first step of two runs that differ in nothing else is the same rollouts."""
    other = ("seal.reward.mode=capped", "seal.diagnosis.taxonomy=release")
    judged = write_run(tmp_path / "b", *SMALL, *other, steps=1, validations=(), seed=4, lost=0.2)
    (found,) = changes(run, tmp_path, "--training", "--step", "1", "--reward-mode", "capped", "--taxonomy", "release")
    lines = lines_of(judged / "seal_log" / "trajectories" / "1.jsonl")
    expected = {(line["task_id"], line["data_source"], line["sample"]): line for line in lines if not line["infra"]}
    assert found["changed"] and {"labels", "reward"} >= {each["reason"]["part"] for each in found["changed"]}
    for change in found["changed"]:
        line = expected[change["task_id"], change["data_source"], change["sample"]]
        assert change["score"][1] == line["score"] and change["labels"][1] == line["labels"]
    if found["reward"]:
        assert found["reward"]["difference"] >= 0 and found["reward"]["low"] <= found["reward"]["high"]


def test_a_task_that_is_gone_is_left_out_and_said(copy, tmp_path, capsys):
    gone = {"task_id": "multi_turn_base_999", "data_source": "base@1", "category": "base"}
    edit(copy / "validation_log" / "0.jsonl", lambda line: line | gone if line["data_source"] == "base@1" else None)
    (found,) = changes(copy, tmp_path, "--step", "0", code=1)
    assert [each["task_id"] for each in found["left_out"]] == ["multi_turn_base_999"]
    assert "the environment does not play it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("log", "options", "said"),
    [
        ("none", (), "holds no <step>.jsonl"),
        ("", ("--step", "7"), "has no step 7: it has 0, 2"),
        ("seal_log/steps.jsonl", (), "is not a log"),
        ("seal_log/withdrawal/2.jsonl", (), "is of a withdrawal"),
        ("validation_log/2.jsonl", (), "a rollout of format 1"),
        ("", ("--training", "--step", "1"), "launches.jsonl is missing"),
    ],
)
def test_what_cannot_be_judged_again_is_one_sentence(copy, capsys, log, options, said):
    path = copy / "validation_log" / "2.jsonl"
    path.write_text(path.read_text().replace('"format": 3', '"format": 1'))
    if "launches" in said:
        (copy / "seal_log" / "launches.jsonl").unlink()
    if "withdrawal" in said:
        shutil.copytree(copy / "validation_log", copy / "seal_log" / "withdrawal")
    assert seal_rescore(copy / log, *options) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
