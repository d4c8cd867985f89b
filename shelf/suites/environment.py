"""An official tool in a Python environment of its own, installed from a lock.

The tools pin packages that conflict with training's, so nothing of theirs is ever imported
here: they are run as programs, and their data and results are read as files.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from seal.system.files import text_sha256, write_text
from seal.system.lock import Locked, lock
from shelf.suites.process import Deadlines, finish

LOCKS = Path(__file__).with_name("locks")
ROOT = "SEAL_ENVS"
"""The environment variable that names the folder of all environments."""

INSTALL_DEADLINE_S = 3600.0
READY = "ready"


def default_root() -> Path:
    """The folder of the environments: SEAL_ENVS, or ``seal/envs`` in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(ROOT) or cache / "seal" / "envs")


class SuiteEnvironment:
    """The environment of some locks; its folder's name changes with them and with Python's version.

    locks: names of files in ``locks/``, each a complete list of pins.
    """

    def __init__(self, name: str, locks: Sequence[str], root: Path | None = None):
        self.name = name
        self.locks = tuple(LOCKS / f"{each}.txt" for each in locks)
        digest = text_sha256("".join(path.read_text(encoding="utf-8") for path in self.locks))
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        self.folder = (root or default_root()) / f"{name}-py{python}-{digest[:12]}"
        self.packages = self.folder / "lib" / f"python{python}" / "site-packages"

    @property
    def ready(self) -> bool:
        """Whether it is installed completely."""
        return (self.folder / READY).is_file()

    def program(self, name: str) -> str:
        """The path of a command of the environment."""
        return str(self.folder / "bin" / name)

    def version(self, package: str) -> str:
        """The locked version of a package; ValueError if no lock holds it."""
        for path in self.locks:
            for line in path.read_text(encoding="utf-8").splitlines():
                name, _, version = line.partition("==")
                if name == package:
                    return version
        raise ValueError(f"No lock of {self.name} holds {package}.")

    def install(self, on_start: Callable[[str], None]) -> None:
        """Install what is missing; on_start gets a sentence if that takes time.

        ValueError if another process installs it now, or if the installation fails; its
        output is in ``install.log`` beside the folder.
        """
        if self.ready:
            return
        log = self.folder.with_name(f"{self.folder.name}.install.log")
        try:
            with lock(self.folder.with_name(f"{self.folder.name}.lock")):
                if not self.ready:
                    on_start(f"Installing {self.name} into {self.folder} (once).")
                    self._install(log)
        except Locked as held:
            raise ValueError(
                f"Process {held.holder and held.holder.pid} installs {self.folder}: wait for it."
            ) from None

    def _install(self, log: Path) -> None:
        log.unlink(missing_ok=True)
        commands = [[sys.executable, "-m", "venv", "--clear", str(self.folder)], self._pip()]
        for command in commands:
            problem = finish(command, log=log, cwd=self.folder.parent, env={}, deadlines=Deadlines(INSTALL_DEADLINE_S))
            if problem:
                raise ValueError(
                    f"{self.name} could not be installed ({problem}; log: {log}): it needs a package index, or "
                    f"copy an installed {self.folder.name} of the same path from another machine."
                )
        write_text("", self.folder / READY)

    def _pip(self) -> list[str]:
        """The command that installs the locks as they are, without resolution."""
        files = [part for path in self.locks for part in ("-r", str(path))]
        python = self.program("python")
        if find_spec("uv"):
            return [sys.executable, "-m", "uv", "pip", "install", "--python", python, "--no-deps", *files]
        return [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", *files]
