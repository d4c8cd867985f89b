"""`seal diagnose relabel`: a log's diagnosis redone offline."""

import json

import pytest
from typer.testing import CliRunner

from seal.diagnosis.evidence import ActionEvidence, CallEvidence, TurnEvidence
from seal.diagnosis.rules import diagnose
from shelf.lab.cli.diagnose import app
from shelf.lab.relabel import relabel_log

CALL = CallEvidence("ls", {}, True)
EPISODE = (
    TurnEvidence(0, 1, (ActionEvidence((CALL,)), ActionEvidence()), "answered", True, True, True),
    TurnEvidence(1, 2, (ActionEvidence(),)),
)


def line(labels):
    return json.dumps({"task_id": "t", "labels": labels, "evidence": [turn.to_json() for turn in EPISODE]})


def command(path, *arguments):
    return CliRunner().invoke(app, ["relabel", str(path), *arguments], env={"COLUMNS": "160"})


def test_nothing_changes_when_the_rules_did_not():
    found = relabel_log([line([d.label for d in diagnose(EPISODE)]), "\n"])
    assert (found.trajectories, found.turns, found.changes) == (1, 2, ())


def test_changes_are_told_with_their_reason():
    found = relabel_log([line(["pass", "state_mismatch", "pass"])])
    assert [(c.line, c.turn, c.before, c.after) for c in found.changes] == [
        (1, 1, "state_mismatch", "missing_tool_call"),
        (1, 2, "pass", ""),
    ]
    assert found.changes[0].reason == "calls were needed and none was made"


def test_the_command_prints_the_changes(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(line(["pass", "state_mismatch"]) + "\n")
    found = command(log)
    assert found.exit_code == 1 and found.stderr == ""
    assert "state_mismatch" in found.stdout and "1 labels change" in found.stdout
    released = command(log, "--taxonomy", "release")
    assert "empty_turn_model_response" in released.stdout


def test_the_command_says_what_is_wrong_with_a_log(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"labels": []}\n')
    found = command(log)
    assert found.exit_code == 2 and "line 1: the key 'evidence' is missing" in found.stderr
    missing = command(tmp_path / "none.jsonl")
    assert missing.exit_code == 2 and "does not exist" in missing.stderr and "Errno" not in missing.stderr


@pytest.mark.parametrize(
    "bad", ["[1]", "{", '{"evidence": [{"colour": 1}], "labels": []}', '{"evidence": 3, "labels": []}']
)
def test_unreadable_lines_name_their_number(bad):
    with pytest.raises(ValueError, match="line 2: not a log line"):
        relabel_log(["\n", bad])
