"""Stopping a run on request: whoever writes the file `experiments/<name>/stop` asks the trainer to save and end.

The launcher does so on Ctrl-C and SIGTERM. The trainer looks between the stages
of a step and while it waits for rollouts.
"""

from __future__ import annotations

from pathlib import Path

STOP_FILE = "stop"


class StopRequested(RuntimeError):
    """The trainer was asked to stop and has saved what there was to save."""


class StopRequest:
    """The request to stop a run, as a file in its folder."""

    def __init__(self, run_dir: Path):
        self._path = run_dir / STOP_FILE

    def make(self) -> None:
        """Ask the trainer to stop."""
        self._path.touch()

    def withdraw(self) -> None:
        """Forget an earlier request."""
        self._path.unlink(missing_ok=True)

    @property
    def made(self) -> bool:
        return self._path.exists()
