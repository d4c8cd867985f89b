"""Logs and checkpoints that name another version are read, or refused in a sentence."""

import json
import time

import pytest
from fastapi.testclient import TestClient

from seal.training.checkpoints import STATE_FILE, STATE_VERSION, CheckpointError, load_state, save_state
from shelf.lab.verify import run_logs
from shelf.statistics.runs import summarise_run
from shelf.view.app import make_app
from shelf.view.report.summary import summarise
from shelf.view.runs import find_runs

LEFT_OUT = "left out"
VERSIONS = (LEFT_OUT, None, 0, 1, 4, 10**30, -1, 2.5, "2", "", True, [2], {"format": 2})
READ = (LEFT_OUT, None, "", 1)
LOGS = ("seal_log", "validation_log")


def with_version(line: dict, key: str, version: object) -> dict:
    return {name: each for name, each in line.items() if name != key} | ({} if version is LEFT_OUT else {key: version})


def logged(run):
    """Return the records that `seal verify` would play again."""
    return [log.records for log in run_logs(run)]


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_logs_of_another_format(run, version):
    for path in (path for folder in LOGS for path in (run / folder).rglob("*.jsonl")):
        lines = [
            with_version(json.loads(line), "format", version) for line in path.read_text().rstrip("\n").split("\n")
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for command in (summarise, lambda run: summarise_run(run, ()), logged):
        try:
            command(run)
        except ValueError as refusal:
            assert str(refusal) and "\n" not in str(refusal)
            assert version not in READ or str(refusal).endswith(": play it again")
    with TestClient(make_app(find_runs([str(run)], run.parent)), base_url="http://127.0.0.1") as client:
        deadline = time.monotonic() + 60
        while not client.get("/api/runs").json()["runs"][0]["index"]["ready"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert client.get("/api/overview?run=damaged").status_code == 200
        assert client.get("/api/trajectories?run=damaged").json()["total"] == (12 if version in READ else 0)


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_a_checkpoint_of_another_version(tmp_path, version):
    save_state(tmp_path, {"step": 1})
    path = tmp_path / STATE_FILE
    path.write_text(json.dumps(with_version(json.loads(path.read_text()), "version", version)))
    with pytest.raises(CheckpointError, match=f"reads version {STATE_VERSION}|is damaged"):
        load_state(tmp_path)
