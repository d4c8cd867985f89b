"""The service as a child process: this process starts it, waits for it, watches it, and stops it at its own end."""

import atexit
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from env_service import variable
from env_service.client import URL_VARIABLE, ServiceClient, ServiceError
from seal.system.net import LOOPBACK, free_port, http_url
from seal.system.text import last_output

START_DEADLINE_S = 120.0
STOP_GRACE_S = 5.0
POLL_S = 0.1
COMMAND = (sys.executable, "-m", "env_service")
_STARTING = threading.Lock()


class LocalService:
    """A process that serves on a loopback port, by default a free one; variables: environment variables for it."""

    def __init__(
        self,
        log: Path,
        port: int | None = None,
        host: str = LOOPBACK,
        command: Sequence[str] = COMMAND,
        cwd: Path | None = None,
        **variables: str,
    ) -> None:
        self.url = http_url(host, port or free_port())
        self._log = log
        self._command = command
        self._cwd = cwd or Path.cwd()
        own = {"host": host, "port": self.url.rsplit(":", 1)[1], "owner": this_process()}
        self._variables = {**{variable(name): value for name, value in own.items()}, **variables}
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start the process and wait until it answers; ServiceError, in one sentence, if it does not."""
        self._launch()
        deadline = time.monotonic() + START_DEADLINE_S
        with ServiceClient(self.url, deadline_s=POLL_S * 30, attempts=1) as client:
            while time.monotonic() < deadline:
                if ended := self.ended():
                    raise ServiceError("environment_unreachable", f"{ended} It was not ready yet (log: {self._log}).")
                try:
                    if client.version().owner in ("", this_process()):
                        return
                except ServiceError:
                    pass
                time.sleep(POLL_S)
        self.stop()
        late = f"The environment service was not ready within {START_DEADLINE_S:g} s; see {self._log}."
        raise ServiceError("environment_unreachable", late)

    def ended(self) -> str | None:
        """Say in one sentence how the process ended; None while it runs and before the start."""
        if self._process is None or self._process.poll() is None:
            return None
        return f"The environment service ended with code {self._process.returncode}: {last_output(self._log)}"

    def stop(self) -> None:
        from seal.system.processes import stop_tree

        if self._process is not None:
            stop_tree(self._process, STOP_GRACE_S)
            self._stopped.set()
            self._process = None

    def _launch(self) -> None:
        """Start the process from a thread that lives until it is stopped.

        The kernel kills the child when the thread that started it ends, and callers may be threads of a pool.
        """
        from seal.system.processes import start

        ready, self._stopped = threading.Event(), threading.Event()

        def keep(stopped: threading.Event) -> None:
            try:
                self._process = start(self._command, log=self._log, cwd=self._cwd, env=self._variables)
            finally:
                ready.set()
            stopped.wait()

        threading.Thread(target=keep, args=(self._stopped,), name="seal-service", daemon=True).start()
        if not ready.wait(START_DEADLINE_S) or self._process is None:
            raise ServiceError("environment_unreachable", "The environment service's process did not begin.")


def this_process() -> str:
    """The name of this process, under which a service that it starts records its owner."""
    return f"process {os.getpid()} on {platform.node()}"


@contextmanager
def local_service(**variables: str) -> Iterator[str]:
    """The address of a service that runs within the block; ServiceError if it cannot be started."""
    with tempfile.TemporaryDirectory(prefix="seal_service_") as folder:
        service = LocalService(Path(folder) / "service.log", **variables)
        try:
            service.start()
            yield service.url
        finally:
            service.stop()


def address(url: str | None = None) -> str:
    """The service to use: `url`, else SEAL_URL, else one that this process starts; ServiceError if that fails."""
    with _STARTING:
        return url or os.environ.get(URL_VARIABLE) or _start_once()


@cache
def _start_once() -> str:
    service = local_service()
    atexit.register(service.__exit__, None, None, None)
    return service.__enter__()
