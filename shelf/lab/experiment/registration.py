"""The registration of an experiment at the start of its first run, and later changes of the experiment's file."""

import time
from pathlib import Path
from typing import Self

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seal.records.format import FORMAT
from seal.system.errors import LaunchError
from seal.system.files import text_sha256, write_jsonl
from seal.system.jsonl import BadLine, read_jsonl
from shelf.lab.experiment.design import Design, parse_design

FILE = "registration.json"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Registration:
    """The file of an experiment as it was when its first run started."""

    time: str
    sha256: str
    text: str

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the registration in an experiment's folder; None before the first run. LaunchError if unreadable."""
        path = folder / FILE
        if not path.is_file():
            return None
        lines = tuple(read_jsonl(path))
        if len(lines) != 1 or isinstance(lines[0], BadLine) or lines[0].value.get("format") != FORMAT:
            raise LaunchError(f"{path} cannot be read: restore it, or remove {path.parent} to start over.")
        return cls(**{name: value for name, value in lines[0].value.items() if name != "format"})

    @classmethod
    def ensure(cls, folder: Path, text: str) -> Self:
        """Return the registration; register this text if there is none."""
        if registered := cls.read(folder):
            return registered
        now = cls(time.strftime("%Y-%m-%d %H:%M:%S%z"), text_sha256(text), text)
        fields = {"time": now.time, "sha256": now.sha256, "text": now.text}
        write_jsonl([{"format": FORMAT, **fields}], folder / FILE)
        return now

    @property
    def design(self) -> Design:
        """The registered design; LaunchError if this version cannot read it."""
        return parse_design(self.text, "the registered file")

    def changes(self, text: str) -> tuple[str, ...]:
        """The keys that differ in the file now; empty if its text is the same."""
        if text_sha256(text) == self.sha256:
            return ()
        was, now = self.design.model_dump(), parse_design(text, "the file").model_dump()
        return tuple(key for key in now if was[key] != now[key]) or ("only comments or layout",)
