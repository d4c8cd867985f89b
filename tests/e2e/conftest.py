"""Runs of the real launcher: the real service, Ray, verl, vLLM and the committed policy."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

HOME = Path(__file__).resolve().parents[2]
START_DEADLINE_S = 600


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Run:
    """One experiment folder and the launches in it."""

    name: str
    overrides: tuple[str, ...]
    port: int = field(default_factory=free_port)

    @property
    def folder(self) -> Path:
        return HOME / "experiments" / self.name

    def command(self, *extra: str) -> list[str]:
        own = (
            f"trainer.experiment_name={self.name}",
            f"env_service.env_url=http://127.0.0.1:{self.port}",
            "trainer.logger=[console]",
        )
        recipe = ["--conf", "exp/quickstart.yaml", "--with-bfcl", "--"]
        return [sys.executable, "launcher.py", *recipe, *own, *self.overrides, *extra]

    def start(self, *extra: str) -> subprocess.Popen:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            self.command(*extra), cwd=HOME, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def finish(self, *extra: str) -> subprocess.CompletedProcess:
        process = self.start(*extra)
        output, _ = process.communicate(timeout=START_DEADLINE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, output)

    def lines(self, relative: str) -> list[dict]:
        path = self.folder / relative
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]

    def wait_for(self, process: subprocess.Popen, condition, what: str) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while not condition():
            if process.poll() is not None:
                raise AssertionError(f"the launcher ended before {what}: {process.stdout.read()}")
            if time.monotonic() > deadline:
                process.kill()
                raise AssertionError(f"no {what} within {START_DEADLINE_S} s")
            time.sleep(0.2)

    def leftovers(self) -> list[str]:
        """Processes of this run that still live: the service by its port, the trainer by its record."""
        found = []
        for process in psutil.process_iter(["cmdline", "environ"]):
            command = " ".join(process.info["cmdline"] or ())
            environment = process.info["environ"] or {}
            mine = self.name in command or environment.get("TENSORBOARD_DIR", "").find(self.name) >= 0
            if (mine or environment.get("BFCL_PORT") == str(self.port)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(command)
        return found


@pytest.fixture
def make_run():
    """Make experiments that are removed after the test."""
    runs = []

    def make(*overrides: str) -> Run:
        run = Run(f"test-{uuid4().hex[:8]}", overrides)
        runs.append(run)
        return run

    yield make
    for run in runs:
        shutil.rmtree(run.folder, ignore_errors=True)
        shutil.rmtree(HOME / "launcher_record" / run.name, ignore_errors=True)
