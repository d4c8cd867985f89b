"""An index of a run's trajectories: what lists and tables need, and where each line is in its file.

It is an SQLite file beside the logs, or in a temporary folder if that place is not writable. It holds nothing that the
logs do not: it can be removed at any time, and a damaged index or one of another version is built again.
"""

import contextlib
import hashlib
import json
import logging
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import orjson
from pydantic import ValidationError

from env_service.protocol import first_error
from seal.records.folder import RunFolder
from seal.records.trajectory import TrajectoryRecord
from seal.system.jsonl import step_files
from shelf.statistics.log import read_sample

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

INDEX_FILE = "view_index.sqlite"
VERSION = 4
TRAIN, VALIDATION = "train", "validation"
WAIT_S = 10.0
"""Seconds to wait for another viewer that writes the index of the same run."""
INTERVAL_S = 1.0
"""Seconds between two looks at a run's folder."""

_UNFIT = (
    ValueError, TypeError, AttributeError, LookupError, OverflowError, sqlite3.InterfaceError, sqlite3.ProgrammingError
)  # fmt: skip
"""Exceptions that an odd line raises when its columns are computed or given to SQLite."""
_LARGE = ("input", "output", "evidence")
"""Fields of a line that the index does not keep."""
_STAMP = "inode, size, mtime"
_SCHEMA = """
CREATE TABLE file (
  id INTEGER PRIMARY KEY, log TEXT NOT NULL, step INTEGER NOT NULL, name TEXT NOT NULL, inode INTEGER NOT NULL,
  size INTEGER NOT NULL, mtime INTEGER NOT NULL, UNIQUE (log, step));
CREATE TABLE trajectory (
  id INTEGER PRIMARY KEY, file INTEGER NOT NULL, line INTEGER NOT NULL, offset INTEGER NOT NULL,
  length INTEGER NOT NULL, log TEXT NOT NULL, step INTEGER NOT NULL, prompt INTEGER NOT NULL, task TEXT NOT NULL,
  source TEXT NOT NULL, category TEXT NOT NULL, split TEXT NOT NULL, sample INTEGER NOT NULL, score REAL NOT NULL,
  passed INTEGER NOT NULL,
  w REAL, advantage REAL, stop TEXT NOT NULL, excluded INTEGER NOT NULL, infra TEXT, omega INTEGER,
  turns INTEGER NOT NULL, turns_passed INTEGER NOT NULL, calls INTEGER NOT NULL, errors INTEGER NOT NULL,
  tokens INTEGER NOT NULL, seconds REAL NOT NULL, cluster INTEGER, labels TEXT NOT NULL, blames TEXT NOT NULL);
CREATE INDEX by_file ON trajectory (file);
CREATE INDEX by_step ON trajectory (log, step, line);
CREATE INDEX by_task ON trajectory (log, task, source, step, sample);
CREATE TABLE turn (
  trajectory INTEGER NOT NULL, log TEXT NOT NULL, step INTEGER NOT NULL, category TEXT NOT NULL, turn INTEGER NOT NULL,
  label TEXT NOT NULL, blame TEXT);
CREATE INDEX turn_by_trajectory ON turn (trajectory);
CREATE INDEX turn_by_label ON turn (log, label, step);
CREATE TABLE tool (trajectory INTEGER NOT NULL, turn INTEGER NOT NULL, name TEXT NOT NULL);
CREATE INDEX tool_by_trajectory ON tool (trajectory, turn);
CREATE INDEX tool_by_name ON tool (name);
CREATE TABLE bad (file INTEGER NOT NULL, line INTEGER NOT NULL, problem TEXT NOT NULL);
"""


@dataclass(frozen=True)
class Progress:
    """Indexed bytes, bytes in the logs, changes of the index since its start. ready: the logs were all read once."""

    read: int = 0
    of: int = 0
    changes: int = 0
    ready: bool = False


class Index:
    """The index of one run. `update` brings it up to date; connections for reading come from `reading`.

    problems: why parts of the logs are not indexed, according to the last update.
    """

    def __init__(self, folder: RunFolder):
        """Open or make the index; OSError if neither the run's folder nor a temporary one is writable."""
        self.folder = folder
        self.progress = Progress()
        self.problems: list[str] = []
        self._files = {TRAIN: folder.trajectories, VALIDATION: folder.validations}
        self.path = self._place()

    def _place(self) -> Path:
        beside = self.folder.path / INDEX_FILE
        if os.access(self.folder.path, os.W_OK) and _usable(beside):
            return beside
        digest = hashlib.sha256(str(self.folder.path.resolve()).encode()).hexdigest()[:16]
        # In this user's own folder, because another user's file with that name must not be opened.
        cache = Path(tempfile.gettempdir()) / f"seal-view-{os.getuid()}"
        cache.mkdir(mode=0o700, exist_ok=True)
        if cache.stat().st_uid != os.getuid():
            raise OSError(f"{cache} belongs to another user: set TMPDIR to a folder of your own.")
        path = cache / f"{digest}.sqlite"
        if not _usable(path):
            raise OSError(f"the index {path} cannot be written: set TMPDIR to a folder that can.")
        return path

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A read-only connection; columns are accessible by name."""
        connection = sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True, timeout=WAIT_S)
        connection.row_factory = sqlite3.Row
        try:
            yield connection
        finally:
            connection.close()

    def ask(self, question: Callable[..., Answer], *given: Any) -> Answer:
        """Return the answer of a function that reads from a connection."""
        with self.reading() as db:
            return question(db, *given)

    def update(self, stop: threading.Event | None = None) -> bool:
        """Read the files that were added or changed, newest step first; return whether the index changed."""
        self.problems = []
        paths = {(log, step): path for log, folder in self._files.items() for step, path in step_files(folder)}
        with contextlib.closing(sqlite3.connect(self.path, timeout=WAIT_S, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")  # a lost index is built again
            known = {
                (log, step): tuple(stamp) for log, step, *stamp in db.execute(f"SELECT log, step, {_STAMP} FROM file")
            }
            dropped = known.keys() - paths.keys()
            for place in dropped:
                _forget(db, *place)
            stamps = {place: stamp for place, path in paths.items() if (stamp := stamp_of(path))}
            work = sorted((place for place in stamps if stamps[place] != known.get(place)), key=lambda place: -place[1])
            total = sum(size for _, size, _ in stamps.values())
            done = total - sum(stamps[place][1] for place in work)
            changed = bool(dropped)
            self._advance(done, total, changed)
            for place in work:
                if stop is not None and stop.is_set():
                    return changed
                try:
                    _read_file(db, *place, paths[place])
                except OSError as error:
                    if paths[place].exists():  # a resumed run removes files at any time
                        self.problems.append(f"{paths[place]} cannot be read: {error.strerror}")
                    continue
                done, changed = done + stamps[place][1], True
                self._advance(done, total, True)
        self.progress = replace(self.progress, ready=True)
        return changed

    def renew(self) -> None:
        """Make the index again if it is missing, damaged or unusable."""
        self.path = self._place()
        self.progress = replace(self.progress, ready=False)

    def _advance(self, read: int, of: int, changed: bool) -> None:
        self.progress = replace(self.progress, read=read, of=of, changes=self.progress.changes + changed)


def _usable(path: Path) -> bool:
    """Return whether the index at `path` can be used; a missing or damaged one, or another version, is rebuilt."""
    for _attempt in range(2):
        try:
            with contextlib.closing(sqlite3.connect(path, timeout=WAIT_S)) as db:
                version = db.execute("PRAGMA user_version").fetchone()[0]
                if version == VERSION and db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok":
                    return True
                if version == 0 and not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    db.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT")
                    return True
        except sqlite3.OperationalError as error:
            logger.info("the index %s cannot be used: %s", path, error)
            return False
        except sqlite3.DatabaseError as error:
            logger.info("the index %s is damaged and is built again: %s", path, error)
        for suffix in ("", "-journal"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
    return False


def _read_file(db: sqlite3.Connection, log: str, step: int, path: Path) -> None:
    """Index a file, replacing what the index holds of it."""
    with path.open("rb") as stream:
        stat = os.fstat(stream.fileno())
        stamp = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        db.execute("BEGIN IMMEDIATE")
        try:
            known = db.execute(f"SELECT {_STAMP} FROM file WHERE log = ? AND step = ?", (log, step)).fetchone()
            if known != stamp:  # if equal, another process has just read this file
                _forget(db, log, step)
                insert = f"INSERT INTO file (log, step, name, {_STAMP}) VALUES (?,?,?,?,?,?)"
                file = db.execute(insert, (log, step, path.name, *stamp)).lastrowid
                _read_lines(db, file, log, step, stream, stat.st_size)
            db.execute("COMMIT")
        except BaseException:
            db.rollback()  # does nothing if a full disk has already ended the transaction
            raise


def _read_lines(db: sqlite3.Connection, file: int | None, log: str, step: int, stream: BinaryIO, size: int) -> None:
    """Index the first `size` bytes; a line that cannot be read, or that SQLite cannot hold, is noted as bad."""
    offset, number, samples = 0, 0, {}
    identity = db.execute("SELECT coalesce(max(id), 0) FROM trajectory").fetchone()[0]
    while offset < size:
        whole = stream.readline()[: size - offset]
        raw, start, offset, number = whole.removesuffix(b"\n"), offset, offset + len(whole), number + 1
        if not raw.strip():
            continue
        db.execute("SAVEPOINT line")
        try:
            record, turns = index_line(raw, step, samples, whole=raw != whole)
            trajectory = (identity + 1, file, number, start, len(raw), log, *_columns(record, turns))
            db.execute(f"INSERT INTO trajectory VALUES ({','.join('?' * 30)})", trajectory)
            for turn in turns:
                place = (identity + 1, log, record.step, record.category)
                db.execute("INSERT INTO turn VALUES (?,?,?,?,?,?,?)", (*place, turn.turn, turn.label, turn.blame))
                used = [(identity + 1, turn.turn, name) for name in turn.tools]
                db.executemany("INSERT INTO tool VALUES (?,?,?)", used)
            identity += 1
        except _UNFIT as error:
            db.execute("ROLLBACK TO line")
            problem = str(error) if isinstance(error, ValueError) else f"has another shape ({error!r})"
            values = (file, number, problem.encode("utf-8", "replace").decode())
            db.execute("INSERT INTO bad VALUES (?,?,?)", values)
        db.execute("RELEASE line")


def parse(raw: bytes) -> Any:
    """The JSON value of a line; ValueError if it is not JSON. NaN, which orjson refuses, is read in Python's form."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            return json.loads(raw)
        except RecursionError:
            raise ValueError("nested too deeply") from None


class Turn(NamedTuple):
    """One labelled turn: its position from 0, label, blame, and the tools that it called or needed."""

    turn: int
    label: str
    blame: str | None
    tools: tuple[str, ...]


def index_line(
    raw: bytes, step: int, samples: dict[tuple, set[int]], whole: bool
) -> tuple[TrajectoryRecord, list[Turn]]:
    """A line's record without dialogue and evidence, and its turns; ValueError says what is wrong with the line.

    step: the step of a line that names none. samples: as for `read_sample`. whole: whether a line break ends the line.
    """
    try:
        value = parse(raw)
    except ValueError as error:
        cut = "" if whole else " (cut short: the writer was interrupted)"
        raise ValueError(f"not valid JSON{cut}: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__} where an object is expected")
    try:
        record = read_sample({name: found for name, found in value.items() if name not in _LARGE}, step, samples)
    except ValidationError as error:
        raise ValueError(first_error(error)) from None
    evidence = value["evidence"] if isinstance(value.get("evidence"), list) else ()
    diagnoses = {turn["turn"]: turn for turn in record.diagnosis if isinstance(turn.get("turn"), int)}
    turns, used = [], [tools(seen) for seen in evidence]  # of turns without a label too, which a page shows
    for number, label in enumerate(record.labels):
        called = used[number] if number < len(used) else ()
        turns.append(Turn(number, label, diagnoses.get(number, {}).get("blame"), called))
    return record, turns


def tools(evidence: Any) -> tuple[str, ...]:
    """The tools that a turn called or needed, each once; () for evidence without any."""
    if not isinstance(evidence, Mapping):
        return ()
    called = [call["name"] for action in evidence.get("actions") or () for call in action.get("calls") or ()]
    return tuple(dict.fromkeys(map(str, [*called, *(evidence.get("needed") or ())])))


def _columns(record: TrajectoryRecord, turns: Sequence[Turn]) -> tuple[object, ...]:
    prompt = -1 if record.group is None else record.group  # a step may train two prompts with the same task
    return (
        record.step, prompt, record.task_id, record.data_source, record.category, record.split, record.sample,
        record.score, record.passed, record.w, record.advantage, record.stop, record.excluded, record.infra,
        record.omega_version, record.turns, record.turns_passed, record.calls, record.errors, record.tokens,
        record.seconds, record.cluster,
        orjson.dumps(record.labels).decode(), orjson.dumps([turn.blame for turn in turns]).decode(),
    )  # fmt: skip


def _forget(db: sqlite3.Connection, log: str, step: int) -> None:
    """Remove what the index holds of a file."""
    file = "SELECT id FROM file WHERE log = ? AND step = ?"
    for table in ("turn", "tool"):
        held = f"SELECT id FROM trajectory WHERE file IN ({file})"
        db.execute(f"DELETE FROM {table} WHERE trajectory IN ({held})", (log, step))
    for table in ("trajectory", "bad"):
        db.execute(f"DELETE FROM {table} WHERE file IN ({file})", (log, step))
    db.execute("DELETE FROM file WHERE log = ? AND step = ?", (log, step))


class Indexer:
    """Keeps the indices of runs up to date, in its own thread, until it is closed."""

    def __init__(self, indices: list[Index]):
        self._indices = indices
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="seal-view-index", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._stop.is_set():
            for index in self._indices:
                try:
                    index.update(self._stop)
                except (OSError, sqlite3.Error) as error:
                    index.problems = [f"{index.folder.path} cannot be indexed now: {error}"]
                    with contextlib.suppress(OSError):
                        index.renew()
            self._stop.wait(INTERVAL_S)

    def close(self) -> None:
        """Stop the thread, after the file that it is reading."""
        self._stop.set()
        self._thread.join(timeout=WAIT_S)


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """Inode, size in bytes and modification time of a file; None if it is not written yet or was dropped."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
