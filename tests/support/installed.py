"""SEAL as others install it: a wheel, in an environment that holds nothing else."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seal.system.paths import HOME


def _uv(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "uv", *map(str, arguments)]
    return subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=900, check=False, **options)


def uv(*arguments: str | Path) -> str:
    """Return the output of a uv command; AssertionError with its last words if it fails."""
    done = _uv(*arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def package_index() -> None:
    """Skips where no package index answers: nothing can be resolved or installed without one."""
    uv("--version")
    probe = _uv("pip", "compile", "-", "--no-deps", "--quiet", "--no-cache", input="packaging\n")
    if probe.returncode != 0:
        pytest.skip(f"no package index can be reached: {probe.stderr.strip()}")


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def install(self, *requirements: str) -> None:
        """Install from the package index, beside what is there."""
        uv("pip", "install", "--quiet", "--python", self.python, *requirements)

    def packages(self) -> set[str]:
        """The names of what is installed."""
        lines = uv("pip", "list", "--format=freeze", "--python", self.python).splitlines()
        return {line.split("==")[0].split(" @")[0] for line in lines}


@pytest.fixture(scope="module")
def environment(package_index: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Environment]:
    """Makes an environment with this checkout's wheel and some of its extras, separated by commas."""
    wheels = tmp_path_factory.mktemp("wheels")
    uv("build", "--wheel", "--quiet", "--out-dir", wheels, HOME)
    (wheel,) = wheels.glob("*.whl")

    def make(extras: str) -> Environment:
        made = Environment(tmp_path_factory.mktemp("environment") / "venv")
        uv("venv", "--quiet", "--python", sys.executable, made.folder)
        made.install(f"{wheel}[{extras}]" if extras else str(wheel))
        return made

    return make
