"""The service of a replay has all tasks of its run."""

import json

import pytest

from env_service.client import ServiceClient
from seal.system.paths import HOME
from shelf.replay.service import service


def test_more_tasks_than_one_request_may_hold_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BFCL_MAX_BODY_BYTES", "450000")
    lines = (HOME / "data" / "test_bed" / "teacher.jsonl").read_text(encoding="utf-8").splitlines()
    tasks = [json.loads(line) for line in lines]
    with service(tasks, 1) as url, ServiceClient(url) as client:
        assert sorted(client.tasks("synth")) == sorted(task["id"] for task in tasks)
