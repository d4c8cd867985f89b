"""`ending.json` of a run: how the last launch that started something ended, written by the first process that knows."""

import json
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import NamedTuple, Self

from seal.records.folder import RunFolder
from seal.system import exits
from seal.system.causes import Cause
from seal.system.files import full_folder, write_json

AGAIN = "Start again to resume from the last checkpoint."


class Ending(NamedTuple):
    """The exit code (seal.system.exits), the cause, and a sentence for the user."""

    code: int
    cause: Cause
    sentence: str

    @classmethod
    def of_code(cls, code: int, run_dir: Path | str) -> Self:
        """The ending of a training process that has written none, by its exit code."""
        if code == 0:
            return cls(exits.FINISHED, "finished", "The last step is trained.")
        if code < 0:
            why = {SIGTERM: ", perhaps because its launcher ended", SIGKILL: ", perhaps because memory ran out"}
            killed = f"The training process was killed by {Signals(-code).name}{why.get(-code, '')}."
            return cls(exits.INFRASTRUCTURE, "process", f"{killed} {AGAIN}")
        if full := full_folder([str(run_dir)]):
            return cls(exits.INFRASTRUCTURE, "error", f"{full} has no space left: make room there. {AGAIN}")
        return cls(exits.FAILED, "error", f"The training process ended with code {code} and did not say why.")

    def write(self, run_dir: Path | str) -> None:
        """Write it, unless a process that is nearer to the cause has written one, or the disk is full."""
        path = RunFolder(run_dir).ending
        if not path.exists():
            with suppress(OSError):
                write_json(self._asdict(), path)

    @classmethod
    def read(cls, run_dir: Path | str) -> Self | None:
        path = RunFolder(run_dir).ending
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None
