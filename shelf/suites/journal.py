"""The finished rollouts of an evaluation, written as they finish, so that it resumes after an interruption."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from seal.records.folder import RunFolder
from seal.records.source import parse_data_source
from seal.system.files import write_json
from seal.system.jsonl import read_records
from seal.system.lock import CannotLock, Locked, lock
from shelf.statistics.log import REPLACED, SETTINGS, has_validations

JOURNAL = "journal.jsonl"
Key = tuple[str, int, int]
"""Task id, number of user turns asked for (-1 for all), sample."""


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Lock a folder of results; ValueError if another evaluation writes to it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(lock(RunFolder(folder).lock))
        except Locked as error:
            who = f" (process {error.holder.pid} since {error.holder.since})" if error.holder else ""
            raise ValueError(
                f"Another evaluation{who} plays into {folder}: wait for it, or give another --out."
            ) from None
        except CannotLock as error:
            raise ValueError(f"{folder} cannot be locked ({error}): give an --out whose file system can.") from error
        yield


class Journal:
    """The lines of one evaluation by task, prefix and sample; if there are two lines, the later one counts."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        """Open or continue; ValueError if the folder holds an evaluation with other settings."""
        require_same_settings(folder, settings)
        self._path, self._settings = folder / JOURNAL, folder / SETTINGS
        self.replaced: Mapping[str, str] = _recorded(self._settings).get(REPLACED, {})
        self.lines: dict[Key, dict[str, Any]] = {_key(line): line for line in resumed(self._path)}

    def add(self, line: Mapping[str, Any]) -> None:
        """Append one finished rollout."""
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
        self.lines[_key(line)] = dict(line)

    def note_replaced(self, replaced: Mapping[str, str]) -> None:
        """Record the fields of requests that the endpoint does not take (`ChatClient`)."""
        if replaced != self.replaced:
            self.replaced = dict(replaced)
            write_json(_recorded(self._settings) | {REPLACED: self.replaced}, self._settings)

    def finished(self) -> set[Key]:
        """The rollouts that do not have to be played again."""
        return {key for key, line in self.lines.items() if line.get("infra") is None}


def resumed(path: Path) -> tuple[dict[str, Any], ...]:
    """The lines of a journal. A half-written last line is removed and its work repeated. ValueError if damaged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    lines, bad = read_records(path, dict)
    if bad:
        raise ValueError(f"The journal is damaged: {bad[0]}")
    return lines


def require_same_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Record the settings of an evaluation in its folder; ValueError if it is a run's or has others."""
    folder.mkdir(parents=True, exist_ok=True)
    known, run = folder / SETTINGS, RunFolder(folder)
    if not known.is_file():
        if run.launches.exists() or has_validations(run):
            raise ValueError(f"{folder} is a run, whose validations would be replaced: give another --out.")
        write_json(dict(settings), known)
        return
    recorded = _recorded(known)
    differing = sorted(key for key in {*recorded, *settings} - {REPLACED} if recorded.get(key) != settings.get(key))
    if differing:
        raise ValueError(
            f"{folder} holds an evaluation with another {', '.join(differing)}: give another --out, or the same "
            "settings to resume it."
        )


def _recorded(settings: Path) -> dict[str, Any]:
    return json.loads(settings.read_text(encoding="utf-8"))


def _key(line: Mapping[str, Any]) -> Key:
    return line["task_id"], parse_data_source(line["data_source"])[1], int(line["sample"])
