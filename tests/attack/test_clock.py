"""A jump of the machine's clock changes no deadline: what counts time counts the monotonic clock."""

import ast
import time
from pathlib import Path

import httpx
import pytest

from env_service.local_service import local_service
from seal.system.paths import HOME
from tests.attack.test_service import BODIES

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
JUMPS = ("+3650d", "-3650d", "+1d", "+0")
WALL = {"time", "time_ns", "localtime", "gmtime", "strftime", "ctime", "now", "utcnow", "today"}
USES = {
    "seal/launch/run.py": "the first stages of a start say when they began",
    "seal/rollout/harness/dialect/chat.py": "a chat completion says when it was created",
    "seal/rollout/harness/dialect/responses.py": "and so does a response",
    "seal/training/log.py": "the lines of stages and launches say when they were written",
    "seal/system/lock.py": "the lock's file says since when it is held",
    "seal/launch/record.py": "the record's folder is named by the time; a name that is taken gets a number",
    "env_service/environments/bfcl/clock.py": "the day that the simulators see",
    "env_service/environments/bfcl/scene.py": "the same day, in the opening of an episode",
    "env_service/environments/bfcl/verifier.py": "the same day, for the references that compare a date with it",
    "shelf/lab/experiment/matrix.py": "when an experiment was registered",
    "shelf/lab/experiment/runner.py": "when an attempt began and ended: the minutes that the report shows",
    "shelf/lab/experiment/collect.py": "when a run was collected",
    "shelf/lab/probe/documents.py": "when a probe began: its rows say it",
    "shelf/view/overview.py": "since when a stage lasts, as the page shows it; never negative",
}
"""Every use of the wall clock in what is shipped. None decides how long something may take."""


def test_the_wall_clock_only_dates_records():
    found = set()
    for path in (path for room in ("seal", "env_service", "shelf") for path in (HOME / room).rglob("*.py")):
        if "tests" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WALL:
                named = ast.unparse(node.func.value)
                if named.split(".")[-1] in ("time", "datetime", "date", "clock"):
                    found.add(str(path.relative_to(HOME)))
    assert found == USES.keys()


@pytest.fixture
def jump(tmp_path, monkeypatch):
    """Moves the wall clock of the processes that are started from now on."""
    if not LIBRARIES:
        pytest.skip("libfaketime is not installed")
    offset = tmp_path / "offset"

    def move(by: str) -> None:
        offset.with_suffix(".new").write_text(by)
        offset.with_suffix(".new").replace(offset)

    move("+0")
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(offset))
    monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
    monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    return move


def test_a_service_whose_clock_jumps_keeps_its_episodes_and_its_deadlines(jump):
    busy = '<tool_call>{"name":"mean","arguments":{"numbers":[1, 2]}}</tool_call>'
    days = set()
    service = local_service(LD_PRELOAD=str(LIBRARIES[0]), BFCL_WORKERS="1", BFCL_IDLE_SECONDS="30")
    with service as url, httpx.Client(base_url=url, timeout=30) as client:
        first = client.post("/create", json=BODIES["create"]).json()["data"]["info"]["instance_id"]
        for by in JUMPS:
            jump(by)
            began = time.monotonic()
            said = {"instance_id": first, "messages": {"role": "assistant", "content": busy}}
            assert client.post("/step", json=said).status_code == 200
            opened = client.post("/create", json=BODIES["create"]).json()["data"]["info"]
            days.add(opened["day"])
            assert client.post("/evaluate", json={"instance_id": opened["instance_id"]}).status_code == 200
            assert client.get("/healthz").text == "OK" and time.monotonic() - began < 20
        figures = client.get("/metrics").text
        assert f"env_service_episodes_open {1 + len(JUMPS)}\n" in figures, "an episode expired"
        assert "env_service_worker_restarts 0\n" in figures
    assert len(days) == len(JUMPS)
