import contextlib
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from shelf.view.app import make_app
from shelf.view.runs import find_runs
from shelf.view.tests.viewer.played_run import write_run


@pytest.fixture(scope="session")
def played(tmp_path_factory) -> Path:
    """A run of six steps; do not change it, see `run`."""
    return write_run(tmp_path_factory.mktemp("view") / "played_s0")


@pytest.fixture
def run(played, tmp_path) -> Path:
    """A copy of the run that a test may change."""
    return Path(shutil.copytree(played, tmp_path / "played_s0", ignore=shutil.ignore_patterns("view_index*")))


@contextlib.contextmanager
def client(*folders: Path, **options) -> Iterator[TestClient]:
    """A client of the viewer of these runs, once its index is up to date."""
    app = make_app(find_runs([str(folder) for folder in folders], Path()), **options)
    with TestClient(app, base_url="http://127.0.0.1") as found:
        if not options.get("token"):
            wait_for_index(found)
        yield found


def wait_for_index(found: TestClient) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        runs = found.get("/api/runs").json()["runs"]
        if all(each["index"]["ready"] for each in runs):
            return
        time.sleep(0.05)
    raise AssertionError("the index was not finished within 60 s")


@contextlib.contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The address of the application, served on a free port of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=20)
