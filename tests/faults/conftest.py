"""Shared by the fault tests. The `fault` marker of a test says what a user sees: `python -m tests.faults.table`."""

import shutil
import subprocess
from pathlib import Path

import pytest

from seal.settings.run import CheckpointSettings
from seal.training.checkpoints import Checkpoints
from tests.support.checkpoints import write_step


@pytest.fixture
def checkpoints(tmp_path):
    """A folder with the checkpoints of steps 1 and 2."""
    made = Checkpoints(tmp_path / "checkpoints", CheckpointSettings(keep_last=2))
    for step in (1, 2):
        write_step(made, step)
    return made


@pytest.fixture
def folder(checkpoints, tmp_path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture(scope="session")
def small_disk() -> tuple[str, ...]:
    """A command prefix: the rest runs with a file system of its own, `$1` of size `$0`."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("this machine lets no process mount a small file system of its own (unshare -rm)")
    mount = 'mount -t tmpfs -o size="$0" tmpfs "$1" && shift && exec "$@"'
    return ("unshare", "-rm", "sh", "-c", mount)
