"""Stopping a run on request: the file `experiments/<name>/stop` asks the trainer to save and end.

The launcher writes it on Ctrl-C and SIGTERM. The trainer checks for it between
the stages of a step and while it waits for rollouts.
"""

from __future__ import annotations

from pathlib import Path

STOP_FILE = "stop"


class StopRequested(RuntimeError):
    """The trainer was asked to stop; the message says what is saved."""


class StopRequest:
    """The request to stop a run, as a file in its folder."""

    def __init__(self, run_dir: Path):
        self._path = run_dir / STOP_FILE

    def make(self) -> None:
        """Ask the trainer to stop."""
        self._path.touch()

    def withdraw(self) -> None:
        """Withdraw an earlier request."""
        self._path.unlink(missing_ok=True)

    @property
    def made(self) -> bool:
        """Whether a stop is requested."""
        return self._path.exists()
