"""An official tool: its own Python environment, installed from a lock, and its programs, run within deadlines.

The tools pin packages that conflict with those of training, so nothing of theirs is ever
imported here: they run as programs, and their data and results are read as files.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from seal.system.files import text_sha256, write_text
from seal.system.lock import Locked, lock
from seal.system.processes import start, stop_tree
from seal.system.text import last_output

LOCKS = Path(__file__).with_name("locks")
ROOT = "SEAL_ENVS"
"""The environment variable that names the folder of all environments."""

READY = "ready"
POLL_S = 0.5
GRACE_S = 5.0


class Deadlines(NamedTuple):
    """total_s: limit for a whole program. stall_s: limit without progress, None if progress is not visible."""

    total_s: float
    stall_s: float | None = None


INSTALLATION = Deadlines(3600.0)


class Program(NamedTuple):
    """A command with its log, its working directory, and the variables added to the environment."""

    command: Sequence[str]
    log: Path
    cwd: Path
    env: Mapping[str, str]


def finish(program: Program, deadlines: Deadlines, progress: Callable[[], int] = lambda: 0) -> str:
    """Run a program and wait for its end; it and all that it started end with this call, also after Ctrl-C.

    Returns in a few words what went wrong, or an empty text. progress: called twice per second and
    at the end; the program counts as stalled while the number stays the same.
    """
    program.cwd.mkdir(parents=True, exist_ok=True)
    process = start(program.command, log=program.log, cwd=program.cwd, env=program.env)
    try:
        began = moved = time.monotonic()
        reached = progress()
        while process.poll() is None:
            time.sleep(POLL_S)
            now = time.monotonic()
            if (count := progress()) != reached:
                reached, moved = count, now
            if now - began > deadlines.total_s:
                return f"stopped after {deadlines.total_s:.0f} s"
            if deadlines.stall_s is not None and now - moved > deadlines.stall_s:
                return f"stopped after {deadlines.stall_s:.0f} s without a result"
        progress()
        code = process.returncode
        return f"ended with code {code}: {last_output(program.log)}" if code else ""
    finally:
        stop_tree(process, GRACE_S)


def cache() -> Path:
    """The folder for SEAL's downloads: `seal` in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seal"


class Tool:
    """The environment of some locks; the name of its folder depends on them and on Python's version.

    locks: names of files in ``locks/``, each a complete list of pins. root: the folder of all environments; by
    default SEAL_ENVS, or ``seal/envs`` in the user's cache.
    """

    def __init__(self, name: str, locks: Sequence[str], root: Path | None = None):
        self.name = name
        self.locks = tuple(LOCKS / f"{lock}.txt" for lock in locks)
        pins = [path.read_text(encoding="utf-8") for path in self.locks]
        self._pins = dict(line.split("==", 1) for text in pins for line in text.splitlines() if "==" in line)
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        root = root or Path(os.environ.get(ROOT) or cache() / "envs")
        self.folder = root / f"{name}-py{python}-{text_sha256(''.join(pins))[:12]}"
        self.packages = self.folder / "lib" / f"python{python}" / "site-packages"

    @property
    def ready(self) -> bool:
        """True if the tool is installed completely."""
        return (self.folder / READY).is_file()

    def program(self, name: str) -> str:
        """The path of a command of the environment."""
        return str(self.folder / "bin" / name)

    def version(self, package: str) -> str:
        """The locked version of a package; KeyError if no lock holds it."""
        return self._pins[package]

    def install(self, say: Callable[[str], None]) -> None:
        """Install the tool if it is missing; `say` gets a sentence, because that takes time.

        ValueError if another process is installing it, or if the installation fails; its
        output is in ``install.log`` beside the folder.
        """
        if self.ready:
            return
        try:
            with lock(self.folder.with_name(f"{self.folder.name}.lock")):
                if not self.ready:
                    say(f"Installing {self.name} into {self.folder} (once).")
                    self._install(self.folder.with_name(f"{self.folder.name}.install.log"))
        except Locked as held:
            raise ValueError(
                f"Process {held.holder and held.holder.pid} installs {self.folder}: wait for it."
            ) from None

    def _install(self, log: Path) -> None:
        log.unlink(missing_ok=True)
        files = [part for path in self.locks for part in ("-r", str(path))]
        python = self.program("python")
        if find_spec("uv"):
            pip = [sys.executable, "-m", "uv", "pip", "install", "--python", python]
        else:
            pip = [python, "-m", "pip", "install", "--disable-pip-version-check"]
        # The locks are complete, so nothing has to be resolved.
        for command in ([sys.executable, "-m", "venv", "--clear", str(self.folder)], [*pip, "--no-deps", *files]):
            if problem := finish(Program(command, log, self.folder.parent, {}), INSTALLATION):
                raise ValueError(
                    f"{self.name} could not be installed ({problem}; log: {log}): it needs a package index, or "
                    f"copy an installed {self.folder.name} of the same path from another machine."
                )
        write_text("", self.folder / READY)
