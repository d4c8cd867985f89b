"""A full disk and a file system that cannot be written cost service and viewer one answer, never the others."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from env_service.local_service import LocalService
from seal.system.paths import HOME
from shelf.view.app import make_app
from shelf.view.runs import find_runs
from tests.attack.test_service import BODIES

FULL = 'mount -t tmpfs -o size=400k tmpfs "$0" && exec "$@"'
READ_ONLY = 'mount -o remount,ro,bind / && exec "$@"'
TASKS = [json.loads(line) for line in (HOME / "data" / "test_bed" / "train.jsonl").read_text().splitlines()[:60]]
SMALL, LARGE = {"tasks": TASKS[:1]}, {"tasks": TASKS}


def inside(mount: str, place: Path, part: str, *given: str) -> str:
    """Return the output of a part of this module in a process whose mounts are its own."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("this machine lets no process mount a file system of its own (unshare -rm)")
    command = ["unshare", "-rm", "sh", "-c", mount, str(place), sys.executable, "-m", __name__, part, str(place)]
    environment = {**os.environ, "PYTHONPATH": str(HOME), "TMPDIR": str(place)}
    done = subprocess.run([*command, *given], env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def room(place: Path) -> int:
    """Free bytes."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


def service_of(place: Path) -> None:
    """Uploads while nothing can be written, and an episode beside them."""
    service = LocalService(Path("/dev/null"), BFCL_WORKERS="1")
    service.start()
    with httpx.Client(base_url=service.url, timeout=30) as client:
        kept = client.post("/tasks", json=SMALL).status_code
        filled = place / "fill"
        if kept == 200:
            filled.write_bytes(bytes(room(place) - 2 * 4096))
        refused = client.post("/tasks", json=LARGE)
        assert refused.status_code == 503 and "TMPDIR" in refused.json()["detail"], refused.text
        assert not list(place.glob("seal_tasks_*/*.part"))
        assert client.post("/tasks", json=SMALL).status_code == kept
        name = client.post("/create", json=BODIES["create"]).json()["data"]["info"]["instance_id"]
        assert client.post("/evaluate", json={"instance_id": name}).status_code == 200
        if kept == 200:
            filled.unlink()
            assert client.post("/tasks", json=SMALL).status_code == 200
        sys.stdout.write(f"{kept} {client.get('/healthz').text}")
    service.stop()


def viewer_of(place: Path, played: str) -> None:
    """A run whose log changes while its disk is full, and another run beside it."""
    run = Path(shutil.copytree(played, place / "run"))
    logged = run / "seal_log" / "trajectories" / "2.jsonl"
    with TestClient(make_app(find_runs([str(run), played], place)), base_url="http://127.0.0.1") as client:

        def wait_for(total: int, problem: bool) -> None:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                found = [client.get("/api/trajectories", params={"run": name}) for name in ("run", "whole")]
                shown = client.get("/api/overview", params={"run": "run"}).json()["runs"][0]["bad_steps"]
                if [answer.json()["total"] for answer in found] == [total, 12] and bool(shown) == problem:
                    return
                time.sleep(0.1)
            raise AssertionError(([answer.text[:200] for answer in found], shown))

        wait_for(12, problem=False)
        (place / "fill").write_bytes(bytes(room(place)))
        os.utime(logged)
        wait_for(12, problem=True)
        (place / "fill").unlink()
        another = json.loads(logged.read_text().split("\n")[0]) | {"sample": 99}
        with logged.open("a") as log:
            log.write(json.dumps(another) + "\n")
        wait_for(13, problem=False)


@pytest.mark.parametrize(("mount", "kept"), [(FULL, 200), (READ_ONLY, 503)])
def test_a_service_that_cannot_write_refuses_uploads_and_plays_on(mount, kept, tmp_path):
    assert inside(mount, tmp_path, "service") == f"{kept} OK"


def test_a_viewer_on_a_full_disk_shows_what_it_has_and_goes_on_when_there_is_room(played, tmp_path):
    inside(FULL.replace("400k", "1m"), tmp_path, "viewer", str(played))


@pytest.mark.parametrize("command", [["report"], ["stats"], ["verify"], ["view", "--port", "0"]])
def test_a_command_that_cannot_write_anywhere_works_or_says_so(played, tmp_path, command):
    line = [sys.executable, "-m", "seal.cli", *command, str(played)]
    mounted = ["unshare", "-rm", "sh", "-c", READ_ONLY, str(tmp_path), *line]
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    done = subprocess.run(mounted, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert "mount:" not in done.stderr
    assert "Traceback" not in done.stderr and done.returncode in (0, 1, 2)
    assert done.returncode == 0 or done.stderr.splitlines()[-1].startswith(f"seal {command[0]}: "), done.stderr


@pytest.mark.parametrize("command", [["data", "prepare"], ["view", "{run}"]], ids=" ".join)
def test_a_command_on_a_full_disk_names_the_folder(played, tmp_path, command):
    given = [word.format(run=played) for word in command]
    out = "--export" if command[0] == "view" else "--out"
    line = [sys.executable, "-m", "seal.cli", *given, out, str(tmp_path / "made")]
    mounted = ["unshare", "-rm", "sh", "-c", FULL.replace("400k", "4k"), str(tmp_path), *line]
    environment = {**os.environ, "PYTHONPATH": str(HOME)}
    done = subprocess.run(mounted, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert str(tmp_path) in done.stderr and "has no space left" in done.stderr


if __name__ == "__main__":
    part, where, *more = sys.argv[1:]
    {"service": service_of, "viewer": viewer_of}[part](Path(where), *more)
