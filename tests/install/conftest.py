import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]


def uv(*arguments: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "uv", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


@pytest.fixture(scope="module")
def package_index():
    """Skips where no package index answers: a lock can be compiled nowhere else."""
    assert uv("--version").returncode == 0, "uv is not installed; run `make setup`."
    probe = uv("pip", "compile", "-", "--no-deps", "--quiet", "--no-cache", input="packaging\n", cwd=HOME)
    if probe.returncode != 0:
        pytest.skip(f"no package index can be reached to compile the lock against: {probe.stderr.strip()}")
