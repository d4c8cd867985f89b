"""A real service on a free port for the tests of this folder."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

# The package makes folders where this points as soon as its handlers are imported.
os.environ["BFCL_PROJECT_ROOT"] = tempfile.mkdtemp(prefix="bfcl_eval_")

ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def running_service(command: Sequence[str] = (sys.executable, "-m", "env_service"), **variables: str) -> Iterator[int]:
    """A service process with BFCL_* variables; yields its port."""
    environment = {**os.environ, "BFCL_PORT": "0", "PYTHONPATH": str(ROOT), **variables}
    log = tempfile.NamedTemporaryFile("w+", suffix=".log")  # noqa: SIM115 - lives as long as the process
    process = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=log, stdout=log)
    try:
        yield _port(process, Path(log.name), environment.get("BFCL_TOKEN"))
    finally:
        process.terminate()
        process.wait(timeout=60)
        log.close()


def _port(process: subprocess.Popen[bytes], log: Path, token: str | None) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the service ended: {log.read_text()}")
        for line in log.read_text().splitlines():
            if "listening on http://" not in line:
                continue
            port = int(line.split("http://")[1].split()[0].rsplit(":", 1)[1])
            with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).read()
                return port
        time.sleep(0.1)
    raise RuntimeError(f"the service did not start: {log.read_text()}")


@pytest.fixture(scope="session")
def service() -> Iterator[int]:
    """The port of a service with two workers and short deadlines."""
    with running_service(BFCL_WORKERS="2", BFCL_CALL_SECONDS="1", BFCL_MEMORY_MB="512") as port:
        yield port


@pytest.fixture(scope="session")
def start_service() -> Callable[..., contextlib.AbstractContextManager[int]]:
    """Starts further services with other settings."""
    return running_service
