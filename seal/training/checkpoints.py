"""The checkpoints of a run: a `global_step_N` folder exists whole or not at all.

| in `experiments/<name>/checkpoints/` | |
| --- | --- |
| `latest_checkpointed_iteration.txt` | the tracker: the step that a run resumes from |
| `global_step_N/` | `actor/` and `data.pt` from verl, `seal_state.json` from SEAL, and last `seal_files.json` (sizes) |
| `best.json` | the step with the best validation average |
| `.saving/` | a save in progress |

A step is written into `.saving/` and moved into place in one rename; then the tracker is replaced. A save that is
killed, fails or fills the disk therefore leaves every earlier checkpoint untouched. The module does not import torch,
because the launcher reads it too.
"""

import json
import os
import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from seal.settings.run import CheckpointSettings
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.files import text_sha256, write_json, write_text
from seal.system.grouping import grouped
from seal.system.text import last_line

TRACKER = "latest_checkpointed_iteration.txt"
FILES = "seal_files.json"
STATE_FILE = "seal_state.json"
STATE_VERSION = 3
BEST = "best.json"
SAVING = ".saving"
REMOVING = ".removing"
STEP_FOLDER = re.compile(r"global_step_(\d+)")
ROOM = 1.05
"""A save needs this many times the size of the last checkpoint as free space."""
GIB = 1 << 30
READERS = 8
_CONTENT = {"model": "model", "optim": "optimizer", "extra_state": "extra"}
"""By verl's name of a part's file: its name in `actor.checkpoint.load_contents`."""
CONTENTS = frozenset(_CONTENT.values())


class CheckpointError(LaunchError):
    """A checkpoint that cannot be written or read; the message names the file and the fix."""

    def __init__(self, message: str):
        super().__init__(message, exits.CHECKPOINT, "checkpoint")


class OtherVersion(CheckpointError):
    """A whole checkpoint whose state another version of SEAL wrote."""


class Best(NamedTuple):
    """The best validated step: average over the categories' whole tasks, and over prefixes if there are any.

    of: a hash of what was validated; averages of other rollouts are not comparable. None: an older version wrote none.
    """

    step: int
    average: float
    prefix_average: float
    of: str | None = None


class Checkpoints:
    """The folder of one run's checkpoints, as the trainer writes it."""

    def __init__(self, folder: Path, retention: CheckpointSettings):
        self._folder = folder.resolve()
        self._retention = retention

    def continue_from(self, checkpoint: Path, step: int) -> None:
        """Resume from `step`, if the checkpoint belongs to this run; later steps are superseded."""
        if checkpoint.resolve().parent != self._folder:
            return
        track(self._folder, step)
        if self.best is not None and self.best.step > step:
            (self._folder / BEST).unlink()

    @contextmanager
    def saving(self, step: int) -> Iterator[Path]:
        """Yield the folder to write the step's files into; afterwards the step is complete.

        CheckpointError without room, or if a file cannot be written; earlier checkpoints then stay as they were.
        """
        staging = self._folder / SAVING
        for left in (staging, self._folder / REMOVING):
            shutil.rmtree(left, ignore_errors=True)
        self._require_room(step)
        written = staging / f"global_step_{step}"
        try:
            written.mkdir(parents=True)
            yield written
            _seal(written, step)
        except (OSError, RuntimeError, CheckpointError) as error:
            shutil.rmtree(staging, ignore_errors=True)
            why = f"could not be written ({last_line(str(error), type(error).__name__)})"
            raise CheckpointError(self._not_saved(step, why, " if that is too little")) from error
        self._publish(written, step)
        self._prune(step)

    def validated(self, step: int, average: float, prefix_average: float, of: str | None = None) -> None:
        """Record a validation; the checkpoint of the best step is kept, if it was saved."""
        candidate, best, folder = Best(step, average, prefix_average, of), self.best, f"global_step_{step}"
        other = best is None or best.step == step or best.of not in (None, of)
        better = other or candidate[1:3] > best[1:3]  # of two equal steps the earlier stays
        if better and (self._folder / folder).is_dir():
            write_json({**candidate._asdict(), "folder": folder}, self._folder / BEST)
            self._prune(step)

    @property
    def best(self) -> Best | None:
        """The best validated step that still has a checkpoint."""
        try:
            entry = json.loads((self._folder / BEST).read_text(encoding="utf-8"))
            best = Best(int(entry["step"]), float(entry["average"]), float(entry["prefix_average"]), entry.get("of"))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return best if (self._folder / f"global_step_{best.step}").is_dir() else None

    def _require_room(self, step: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        whole = whole_steps(self._folder)
        needed = ROOM * sum((_listed(self._folder / f"global_step_{whole[-1]}") or {}).values()) if whole else 0
        if shutil.disk_usage(self._folder).free < needed:
            raise CheckpointError(self._not_saved(step, f"needs about {needed / GIB:.2f} GiB"))

    def _not_saved(self, step: int, why: str, condition: str = "") -> str:
        whole = whole_steps(self._folder)
        last = f"The last whole one is global_step_{whole[-1]}" if whole else "There is no earlier one"
        free = shutil.disk_usage(self._folder).free / GIB
        return (
            f"The checkpoint of step {step} {why}; {self._folder} has {free:.2f} GiB free. {last}: free disk space"
            f"{condition}, then start again to resume."
        )

    def _publish(self, written: Path, step: int) -> None:
        final = self._folder / written.name
        if final.exists():  # from before the run was resumed at an earlier step
            _remove(final)
        os.replace(written, final)
        shutil.rmtree(written.parent, ignore_errors=True)
        track(self._folder, step)

    def _prune(self, newest: int) -> None:
        """Remove checkpoints that the retention does not keep or that a resume from an earlier step superseded."""
        steps = whole_steps(self._folder)
        keep = set([step for step in steps if step <= newest][-self._retention.keep_last :])
        if self._retention.keep_best and self.best is not None:
            keep.add(self.best.step)
        for step in [step for step in steps if step not in keep]:
            _remove(self._folder / f"global_step_{step}")


def last_step(folder: Path) -> int | None:
    """Return the step that the tracker names; if it is missing or damaged, the newest whole one, or None."""
    with suppress(FileNotFoundError, UnicodeDecodeError):
        named = (folder / TRACKER).read_text(encoding="utf-8").strip()
        if named.isdigit() and (folder / f"global_step_{named}").is_dir():
            return int(named)
    return max(whole_steps(folder), default=None)


def track(folder: Path, step: int) -> None:
    write_text(str(step), folder / TRACKER, flush=True)


def whole_steps(folder: Path) -> list[int]:
    """Return the steps whose checkpoint has all its files in full size, ascending."""
    saved = {step_of(path): path for path in folder.glob("global_step_*")}
    return sorted(step for step, path in saved.items() if step is not None and _missing(path) is None)


def verify(checkpoint: Path) -> dict[int, frozenset[str]]:
    """Read a checkpoint completely; returns what verl saved of the actor, by the number of processes that saved it.

    CheckpointError names the first file that is missing, cut short or corrupt; OtherVersion: no file is, but another
    version wrote the state.
    """
    damage = _missing(checkpoint) or _corrupt(checkpoint)
    if damage is None:
        return _parts(_listed(checkpoint) or {})
    others = [step for step in whole_steps(checkpoint.parent) if checkpoint.name != f"global_step_{step}"]
    fix = (
        f"resume from another one with --resume {quote(str(checkpoint.parent / f'global_step_{others[-1]}'))}"
        if others
        else "there is no other one here, so start over in another experiment folder (trainer.experiment_name)"
    )
    raise CheckpointError(f"{damage}, so {checkpoint.name} cannot be resumed from: {fix}.")


def _parts(files: Iterable[str]) -> dict[int, frozenset[str]]:
    named = (re.fullmatch(rf"actor/({'|'.join(_CONTENT)})_world_size_(\d+)_rank_0\.pt", name) for name in files)
    parts = grouped((int(match[2]), _CONTENT[match[1]]) for match in named if match)
    return {processes: frozenset(contents) for processes, contents in parts.items()}


def step_of(checkpoint: Path) -> int | None:
    """Return the step of a `global_step_N` folder, None for any other name."""
    match = STEP_FOLDER.fullmatch(checkpoint.name)
    return int(match.group(1)) if match else None


def save_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write the state atomically; creates the folder if needed."""
    body = json.dumps(state, sort_keys=True)
    envelope = {"version": STATE_VERSION, "sha256": text_sha256(body), "state": body}
    write_text(json.dumps(envelope), folder / STATE_FILE)


def load_state(folder: Path) -> dict[str, Any]:
    """Read a state; CheckpointError names a file that is missing, damaged or of another version."""
    path = folder / STATE_FILE
    try:
        envelope = json.loads(path.read_text(encoding="utf-8"))
        body, version = envelope["state"], envelope["version"]
        intact = envelope["sha256"] == text_sha256(body)
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is missing: this checkpoint was not written by SEAL; start over in another experiment folder."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        intact = False
    if not intact:
        raise CheckpointError(f"{path} is damaged: resume from an earlier global_step folder.")
    if version != STATE_VERSION:
        raise OtherVersion(
            f"{path} has version {version} and this SEAL reads version {STATE_VERSION}: resume with the SEAL that "
            "wrote it (launcher_record has its commit)."
        )
    return json.loads(body)


def _seal(written: Path, step: int) -> None:
    """Flush every file and write the list of files, which marks the checkpoint as whole."""
    files: dict[str, int] = {}
    for path in sorted(written.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
            files[path.relative_to(written).as_posix()] = path.stat().st_size
    _require_all_ranks(files)
    write_text(json.dumps({"step": step, "files": files}, indent=1) + "\n", written / FILES, flush=True)


def _require_all_ranks(files: Mapping[str, int]) -> None:
    worlds = [re.fullmatch(r"(actor/model_world_size_(\d+))_rank_\d+\.pt", name) for name in files]
    for match in filter(None, worlds):
        missing = [rank for rank in range(int(match.group(2))) if f"{match.group(1)}_rank_{rank}.pt" not in files]
        if missing:
            raise CheckpointError(
                f"the part of rank {missing[0]} is not there: set a folder that all nodes share with "
                "trainer.default_local_dir"
            )


def _missing(checkpoint: Path) -> str | None:
    """Name the first file that is missing or has another size than listed; None if there is none."""
    listed = _listed(checkpoint)
    if listed is None:
        return f"{checkpoint / FILES} is missing or cannot be read"
    for name, size in listed.items():
        path = checkpoint / name
        if not path.is_file():
            return f"{path} is missing"
        if path.stat().st_size != size:
            return f"{path} has {path.stat().st_size} bytes instead of {size}"
    return None


def _corrupt(checkpoint: Path) -> str | None:
    """Name the first file that fails its checksum; torch's files are zip archives with checksums of their own."""
    try:
        load_state(checkpoint)
    except OtherVersion:
        raise  # another checkpoint of the run would not help
    except CheckpointError:
        return f"{checkpoint / STATE_FILE} is damaged"
    archives = [checkpoint / name for name in _listed(checkpoint) or {} if name.endswith(".pt")]
    with ThreadPoolExecutor(READERS) as pool:
        intact = list(pool.map(_intact, archives))
    return next((f"{path} is corrupt" for path, good in zip(archives, intact, strict=True) if not good), None)


def _intact(archive: Path) -> bool:
    with archive.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as parts:
                stored = all(not part.compress_type and part.compress_size == part.file_size for part in parts.filelist)
                return stored and parts.testzip() is None
        except (zipfile.BadZipFile, EOFError, OSError, OverflowError, RuntimeError, ValueError):
            return False


def _listed(checkpoint: Path) -> dict[str, int] | None:
    try:
        files: Any = json.loads((checkpoint / FILES).read_text(encoding="utf-8"))["files"]
        return {str(name): int(size) for name, size in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _remove(checkpoint: Path) -> None:
    # Renamed first, so that an interrupted removal cannot leave half a checkpoint under this name.
    doomed = checkpoint.parent / REMOVING / checkpoint.name
    doomed.parent.mkdir(exist_ok=True)
    shutil.rmtree(doomed, ignore_errors=True)
    os.replace(checkpoint, doomed)
    shutil.rmtree(doomed.parent, ignore_errors=True)
