"""A checkpoint's state is whole or refused; logs continue where the checkpoint stands."""

import json
from dataclasses import replace

import pytest

from seal.records.trajectory import TrajectoryRecord
from seal.settings.run import CheckpointSettings
from seal.training.checkpoints import (
    STATE_FILE,
    STATE_VERSION,
    CheckpointError,
    Checkpoints,
    OtherVersion,
    load_state,
    save_state,
    verify,
)
from seal.training.log import RunLog


def test_state_round_trips(tmp_path):
    state = {"rho": {"pass": 1.0}, "omega": {"version": 3, "cues": {}}}
    save_state(tmp_path / "global_step_3", state)
    assert load_state(tmp_path / "global_step_3") == state


@pytest.mark.parametrize("damage", ["", "{", '{"version": 1, "sha256": "0", "state": "{}"}', "[]", '{"state": 1}'])
def test_a_damaged_state_is_refused_by_name(tmp_path, damage):
    save_state(tmp_path, {"rho": {}})
    (tmp_path / STATE_FILE).write_text(damage)
    with pytest.raises(CheckpointError, match=STATE_FILE):
        load_state(tmp_path)


def test_a_missing_state_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="missing"):
        load_state(tmp_path)


def test_a_state_of_another_version_is_refused(tmp_path):
    save_state(tmp_path, {"rho": {}})
    path = tmp_path / STATE_FILE
    path.write_text(path.read_text().replace(f'"version": {STATE_VERSION}', '"version": 99'))
    with pytest.raises(CheckpointError, match="version 99"):
        load_state(tmp_path)


def test_a_launch_tells_a_state_of_another_version_from_a_damaged_one(tmp_path, monkeypatch):
    with Checkpoints(tmp_path, CheckpointSettings()).saving(1) as folder:
        monkeypatch.setattr("seal.training.checkpoints.STATE_VERSION", 99)
        save_state(folder, {"rho": {}})
        monkeypatch.undo()
    with pytest.raises(OtherVersion, match="version 99"):
        verify(tmp_path / "global_step_1")


def test_a_log_without_the_checkpoints_step_is_completed_once(tmp_path):
    log = RunLog(tmp_path)
    steps = tmp_path / "seal_log" / "steps.jsonl"
    steps.write_text('{"step": 1}\n')
    lines = {"steps": {"step": 2, "reward_mean": 0.5}, "omega": {"step": 2}}
    for _ in range(2):
        log.keep_through(2)
        log.complete(lines)
    assert [json.loads(line) for line in steps.read_text().splitlines()] == [{"step": 1}, lines["steps"]]
    assert len((tmp_path / "seal_log" / "omega.jsonl").read_text().splitlines()) == 1


def test_a_resumed_log_drops_later_steps_and_half_lines(tmp_path):
    log = RunLog(tmp_path)
    steps = tmp_path / "seal_log" / "steps.jsonl"
    steps.write_text("".join(json.dumps({"step": step}) + "\n" for step in (1, 2, 3)) + '{"step": 4, "rew')
    record = TrajectoryRecord("multi_turn_base_0", "base", "base", "eval", 0, 1.0)
    for step in (2, 3):
        log.validation(step, [record])
        log.trajectories(step, [record])
    log.keep_through(2)
    assert [json.loads(line)["step"] for line in steps.read_text().splitlines()] == [1, 2]
    assert [path.name for path in (tmp_path / "validation_log").iterdir()] == ["2.jsonl"]
    assert [path.name for path in (tmp_path / "seal_log" / "trajectories").iterdir()] == ["2.jsonl"]


def test_validation_lines_hold_dialogue_and_figures_in_a_fixed_order(tmp_path):
    log = RunLog(tmp_path)
    messages = (
        {"role": "system", "content": "t"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
    )
    records = [
        TrajectoryRecord(f"multi_turn_base_{i}", "base", "base", "eval", 0, 1.0, labels=("pass",), messages=messages)
        for i in (2, 1)
    ]
    log.validation(0, records)
    lines = [json.loads(line) for line in (tmp_path / "validation_log" / "0.jsonl").read_text().splitlines()]
    assert [line["task_id"] for line in lines] == ["multi_turn_base_1", "multi_turn_base_2"]
    assert lines[0]["input"] == list(messages[:2]) and lines[0]["output"] == [messages[2]]
    assert (lines[0]["score"], lines[0]["labels"], lines[0]["step"]) == (1.0, ["pass"], 0)


def test_a_withdrawal_is_logged_beside_its_validation(tmp_path):
    log = RunLog(tmp_path)
    record = TrajectoryRecord("multi_turn_base_0", "base", "base", "eval", 0, 1.0)
    log.validation(0, [record])
    assert not (tmp_path / "seal_log" / "withdrawal").exists()
    log.validation(4, [record, replace(record, withdrawal="hidden"), replace(record, withdrawal="shown")])
    files = ("validation_log/4.jsonl", "seal_log/withdrawal/4.jsonl")
    logged = [[json.loads(line)["withdrawal"] for line in (tmp_path / name).read_text().splitlines()] for name in files]
    assert logged == [[None], ["hidden", "shown"]]
