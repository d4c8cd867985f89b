"""What was registered when the first run of an experiment started, and what has changed in its file since."""

import time
from typing import Self

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seal.records.format import FORMAT
from seal.system.errors import LaunchError
from seal.system.files import text_sha256, write_jsonl
from seal.system.jsonl import BadLine, read_jsonl
from shelf.lab.experiment.design import Design, parse_design
from shelf.lab.experiment.matrix import Experiment


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Registration:
    """The file of an experiment as it was when its first run started."""

    time: str
    sha256: str
    text: str

    @classmethod
    def of(cls, experiment: Experiment) -> Self | None:
        """What is registered; None before the first run. LaunchError for a file that cannot be read."""
        path = experiment.registration
        if not path.is_file():
            return None
        (line,) = tuple(read_jsonl(path)) or (BadLine(path, 1, "is empty"),)
        if isinstance(line, BadLine) or line.value.get("format") != FORMAT:
            raise LaunchError(f"{path} cannot be read: restore it, or remove {path.parent} to start over.")
        return cls(**{name: value for name, value in line.value.items() if name != "format"})

    @classmethod
    def ensure(cls, experiment: Experiment) -> Self:
        """What is registered; registers the file as it is now if nothing was."""
        found = cls.of(experiment)
        if found:
            return found
        now = cls(time.strftime("%Y-%m-%d %H:%M:%S%z"), text_sha256(experiment.text), experiment.text)
        write_registration(now, experiment)
        return now

    @property
    def design(self) -> Design:
        """The registered design; LaunchError if this version cannot read it."""
        return parse_design(self.text, "the registered file")

    def changes(self, experiment: Experiment) -> tuple[str, ...]:
        """What differs in the file now, a few words each; empty if its text is the same."""
        if text_sha256(experiment.text) == self.sha256:
            return ()
        was, now = self.design.model_dump(), experiment.design.model_dump()
        changed = [_change(key, was[key], now[key]) for key in now if was[key] != now[key]]
        return tuple(changed) or ("only comments or layout",)


def write_registration(registration: Registration, experiment: Experiment) -> None:
    """Write the registration as one line of JSON."""
    fields = {"time": registration.time, "sha256": registration.sha256, "text": registration.text}
    write_jsonl([{"format": FORMAT, **fields}], experiment.registration)


def _change(key: str, was: object, now: object) -> str:
    if isinstance(was, dict) and isinstance(now, dict):
        added, gone = [name for name in now if name not in was], [name for name in was if name not in now]
        other = [name for name in now if name in was and was[name] != now[name]]
        words = (("added", added), ("removed", gone), ("changed", other))
        return f"{key}: " + "; ".join(f"{word} {', '.join(names)}" for word, names in words if names)
    return f"{key} was {_short(was)} and is {_short(now)}"


def _short(value: object) -> str:
    text = str(list(value) if isinstance(value, tuple) else value)
    return repr(text if len(text) <= 60 else text[:57] + "...")
