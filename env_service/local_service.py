"""A service for programs that name none: one per process, started when it is first needed."""

import atexit
import os
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path

from env_service.client import URL_VARIABLE, ServiceClient, ServiceError
from seal.system.net import LOOPBACK, free_port
from seal.system.text import last_line

START_DEADLINE_S = 120.0
STOP_GRACE_S = 5.0
_POLL_S = 0.1
_STARTING = threading.Lock()
_URLS: list[str] = []


def address(url: str | None = None) -> str:
    """The service to use: `url`, else that of SEAL_URL, else one that this process starts and ends with it.

    ServiceError if it must be started and cannot be: one sentence says why.
    """
    return url or os.environ.get(URL_VARIABLE) or _local()


def _local() -> str:
    with _STARTING:
        if not _URLS:
            _URLS.append(_start())
        return _URLS[0]


def _start() -> str:
    if find_spec("uvicorn") is None or find_spec("psutil") is None:
        raise ServiceError(
            "unreachable",
            f"No environment service is named, and none is installed here: set {URL_VARIABLE} to one that runs, or "
            "pip install 'seal-rl[service]'.",
        )
    folder = tempfile.TemporaryDirectory(prefix="seal_service_")
    atexit.register(folder.cleanup)
    log, url = Path(folder.name) / "service.log", f"http://{LOOPBACK}:{free_port()}"
    process = _launched(url, log)
    deadline = time.monotonic() + START_DEADLINE_S
    with ServiceClient(url) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                said = last_line(log.read_text(encoding="utf-8", errors="replace"), "it printed nothing.")
                raise ServiceError("unreachable", f"The environment service could not start: {said}")
            try:
                client.version()
            except ServiceError:
                time.sleep(_POLL_S)
            else:
                return url
    raise ServiceError("unreachable", f"The environment service was not ready within {START_DEADLINE_S:g} s.")


def _launched(url: str, log: Path) -> subprocess.Popen[bytes]:
    """Start the process from a thread that lives as long as this process.

    The kernel ends a child that asked for it when the thread that started it ends, and
    callers come from pools of threads.
    """
    from seal.system.processes import start, stop_tree

    ready, started = threading.Event(), []

    def keep() -> None:
        env = {"BFCL_HOST": LOOPBACK, "BFCL_PORT": url.rsplit(":", 1)[1]}
        started.append(start([sys.executable, "-m", "env_service"], log=log, cwd=Path.cwd(), env=env))
        ready.set()
        threading.Event().wait()

    threading.Thread(target=keep, name="seal-service", daemon=True).start()
    if not ready.wait(START_DEADLINE_S):
        raise ServiceError("unreachable", "The environment service could not be started: its process did not begin.")
    atexit.register(stop_tree, started[0], STOP_GRACE_S)
    return started[0]
