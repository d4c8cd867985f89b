"""The service that environments of this process share when nobody names another one."""

import atexit
import sys
import tempfile
import threading
import time
from pathlib import Path

from seal.client import ServiceClient, ServiceError
from seal.net import LOOPBACK, free_port
from seal.processes import start, stop_tree
from seal.text import last_line

START_DEADLINE_S = 120.0
STOP_GRACE_S = 5.0
_POLL_S = 0.1
_STARTING = threading.Lock()
_URLS: list[str] = []


def local_service() -> str:
    """The address of this process's own service; the first call starts it.

    It ends with the process, or with the thread that made the first call. ServiceError
    if it cannot start: its last line says why.
    """
    with _STARTING:
        if not _URLS:
            _URLS.append(_start())
        return _URLS[0]


def _start() -> str:
    folder = tempfile.TemporaryDirectory(prefix="seal_service_")
    log, port = Path(folder.name) / "service.log", free_port()
    process = start(
        [sys.executable, "-m", "env_service"],
        log=log,
        cwd=Path.cwd(),
        env={"BFCL_HOST": LOOPBACK, "BFCL_PORT": str(port)},
    )
    atexit.register(folder.cleanup)
    atexit.register(stop_tree, process, STOP_GRACE_S)
    url = f"http://{LOOPBACK}:{port}"
    deadline = time.monotonic() + START_DEADLINE_S
    with ServiceClient(url) as client:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise ServiceError("unreachable", f"The environment service could not start: {_said(log)}")
            try:
                client.version()
            except ServiceError:
                time.sleep(_POLL_S)
            else:
                return url
    raise ServiceError("unreachable", f"The environment service was not ready within {START_DEADLINE_S:g} s.")


def _said(log: Path) -> str:
    return last_line(log.read_text(encoding="utf-8", errors="replace"), "it printed nothing.")
