"""The runs to view, their names, and which of them are seeds of one arm."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seal.records.folder import RunFolder

_SEED = re.compile(r"(?:[-_.]s|[-_.]?seed)[-_.]?\d+$")  # the s of `layers4` belongs to a word


@dataclass(frozen=True)
class ViewedRun:
    """One run: its name in addresses, its arm (the name that its seeds share) and its folder."""

    name: str
    arm: str
    folder: RunFolder


def find_runs(named: Sequence[str], parent: Path) -> tuple[ViewedRun, ...]:
    """The runs to view: those named, or every run below `parent` if none is.

    A name is a folder; commas join the seeds of one arm, and ARM= in front names the arm. ValueError with one sentence
    for a folder that does not exist, holds no run, or is named twice.
    """
    if not named:
        paths = [path for path in sorted(parent.glob("*")) if _holds_run(path)]
        if not paths:
            raise ValueError(f"{parent} holds no run: name the folder of one (experiments/NAME).")
        return _named([(None, path) for path in paths])
    places: list[tuple[str | None, Path]] = []
    for argument in named:
        whole = Path(argument).is_dir()  # a folder's name may hold "=" and ","
        arm, _, folders = ("", "", argument) if whole else argument.rpartition("=")
        parts = [Path(folder) for folder in ([folders] if whole else folders.split(",")) if folder]
        if not parts:
            raise ValueError(f"{argument!r} names no folder: write RUN, RUN,RUN or ARM=RUN,RUN.")
        shared = arm or (_arm(parts[0].resolve().name) if len(parts) > 1 else None)
        places += [(shared, part) for part in parts]
    for _arm_name, path in places:
        if not path.is_dir():
            raise ValueError(f"{path} is not a folder: name a run (experiments/NAME).")
        if not _holds_run(path):
            raise ValueError(f"{path} holds neither seal_log nor validation_log: name a run (experiments/NAME).")
    twice = [str(path) for path, count in Counter(path.resolve() for _, path in places).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]} is named twice: name each run once.")
    return _named(places)


def _named(places: Sequence[tuple[str | None, Path]]) -> tuple[ViewedRun, ...]:
    names = Counter(path.resolve().name for _, path in places)
    runs = []
    for arm, path in places:
        whole = path.resolve()
        # Folders with the same name also show the name of their parent.
        name = whole.name if names[whole.name] == 1 else f"{whole.parent.name}/{whole.name}"
        runs.append(ViewedRun(name, arm or _arm(name), RunFolder(whole)))
    if repeated := [name for name, count in Counter(run.name for run in runs).items() if count > 1]:
        raise ValueError(f"two runs would be called {repeated[0]}: view them one after the other.")
    return tuple(runs)


def _arm(name: str) -> str:
    return _SEED.sub("", name) or name


def _holds_run(path: Path) -> bool:
    folder = RunFolder(path)
    return folder.steps.parent.is_dir() or folder.validations.is_dir()
