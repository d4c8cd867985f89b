"""An index of a run's trajectories: what lists and tables need, and where each line is in its file.

It is an SQLite file beside the logs, or in a temporary folder where they cannot be
written. It holds nothing that the logs do not: it can be removed at any time, and
one that is damaged or of another version is built again.
"""

import contextlib
import hashlib
import logging
import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from seal.labels import EXCLUDED
from seal.records.folder import RunFolder
from seal.records.trajectory import MET
from seal.system.jsonl import step_files
from shelf.view.lines import IndexedLine, index_line

logger = logging.getLogger(__name__)

INDEX_FILE = "view_index.sqlite"
VERSION = 1
TRAIN, VALIDATION = "train", "validation"
WAIT_S = 10.0
"""How long to wait for another viewer of the same run that writes the index."""
INTERVAL_S = 1.0
"""Between two looks at a run's folder."""

_SCHEMA = """
CREATE TABLE file (
  id INTEGER PRIMARY KEY, log TEXT NOT NULL, step INTEGER NOT NULL, name TEXT NOT NULL, inode INTEGER NOT NULL,
  size INTEGER NOT NULL, mtime INTEGER NOT NULL, read INTEGER NOT NULL, lines INTEGER NOT NULL,
  UNIQUE (log, step));
CREATE TABLE trajectory (
  id INTEGER PRIMARY KEY, file INTEGER NOT NULL, line INTEGER NOT NULL, offset INTEGER NOT NULL,
  length INTEGER NOT NULL, log TEXT NOT NULL, step INTEGER NOT NULL, task TEXT NOT NULL, source TEXT NOT NULL,
  category TEXT NOT NULL, split TEXT NOT NULL, sample INTEGER NOT NULL, score REAL NOT NULL, passed INTEGER NOT NULL,
  w REAL, advantage REAL, stop TEXT NOT NULL, excluded INTEGER NOT NULL, infra TEXT, omega INTEGER,
  turns INTEGER NOT NULL, turns_passed INTEGER NOT NULL, calls INTEGER NOT NULL, errors INTEGER NOT NULL,
  tokens INTEGER NOT NULL, seconds REAL NOT NULL, labels TEXT NOT NULL, blames TEXT NOT NULL);
CREATE INDEX by_file ON trajectory (file);
CREATE INDEX by_step ON trajectory (log, step, line);
CREATE INDEX by_task ON trajectory (log, task, source, step, sample);
CREATE TABLE turn (
  trajectory INTEGER NOT NULL, log TEXT NOT NULL, step INTEGER NOT NULL, category TEXT NOT NULL, turn INTEGER NOT NULL,
  label TEXT NOT NULL, kind TEXT NOT NULL, blame TEXT, rule TEXT);
CREATE INDEX turn_by_trajectory ON turn (trajectory);
CREATE INDEX turn_by_label ON turn (log, label, step);
CREATE TABLE tool (trajectory INTEGER NOT NULL, turn INTEGER NOT NULL, name TEXT NOT NULL);
CREATE INDEX tool_by_trajectory ON tool (trajectory, turn);
CREATE INDEX tool_by_name ON tool (name);
CREATE TABLE bad (file INTEGER NOT NULL, line INTEGER NOT NULL, problem TEXT NOT NULL);
"""


def kind_of(label: str) -> str:
    """met, failed, or excluded (never counted)."""
    return "met" if label in MET else "excluded" if label in EXCLUDED else "failed"


@dataclass(frozen=True)
class Progress:
    """How much of the logs is indexed, in bytes, and how often the index has changed since the start.

    ready: whether the logs were looked through once.
    """

    read: int = 0
    of: int = 0
    changes: int = 0
    ready: bool = False


class Index:
    """The index of one run. `update` brings it up to date; connections for reading come from `reading`."""

    def __init__(self, folder: RunFolder):
        """Open or make the index; OSError if neither the run's nor a temporary folder can be written."""
        self.folder = folder
        self.progress = Progress()
        self._unreadable: set[Path] = set()
        self._files = {TRAIN: folder.trajectories, VALIDATION: folder.validations}
        self.path = self._place()

    def _place(self) -> Path:
        beside = self.folder.path / INDEX_FILE
        if os.access(self.folder.path, os.W_OK) and _usable(beside):
            return beside
        digest = hashlib.sha256(str(self.folder.path.resolve()).encode()).hexdigest()[:16]
        # In a folder of this user's own: another user's file of that name must not be opened.
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
        """A connection that reads; rows have names."""
        connection = sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True, timeout=WAIT_S)
        connection.row_factory = sqlite3.Row
        try:
            yield connection
        finally:
            connection.close()

    def update(self, stop: threading.Event | None = None) -> bool:
        """Read what was added or changed since the last time, newest step first; return whether anything was."""
        listed = [
            (log, step, path) for log, folder in self._files.items() for step, path in step_files(folder)
        ]  # a folder that does not exist has no files
        listed.sort(key=lambda each: -each[1])
        with contextlib.closing(sqlite3.connect(self.path, timeout=WAIT_S, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")  # a lost index is built again
            known = {
                (row[0], row[1]): row[2:]
                for row in db.execute("SELECT log, step, id, inode, size, mtime, read, lines FROM file")
            }
            changed = False
            for log, step in known.keys() - {(log, step) for log, step, _ in listed}:
                _forget(db, known[log, step][0])
                changed = True
            work = []
            done = total = 0
            for log, step, path in listed:
                try:
                    stat = path.stat()
                except FileNotFoundError:
                    continue
                total += stat.st_size
                row = known.get((log, step))
                if row and row[1:4] == (stat.st_ino, stat.st_size, stat.st_mtime_ns):
                    done += stat.st_size
                else:
                    work.append((log, step, path, row))
            self.progress = replace(self.progress, read=done, of=total, changes=self.progress.changes + changed)
            for log, step, path, row in work:
                if stop is not None and stop.is_set():
                    break
                try:
                    size = _read_file(db, log, step, path, row)
                except OSError as error:
                    if path not in self._unreadable and path.exists():  # a resumed run removes files at any time
                        logger.warning("%s cannot be read: %s", path, error)
                        self._unreadable.add(path)
                    continue
                done, changed = done + size, True
                self.progress = replace(self.progress, read=done, changes=self.progress.changes + 1)
            else:
                self.progress = replace(self.progress, ready=True)
        return changed


def _usable(path: Path) -> bool:
    """Whether the index at `path` can be used; one that is missing, damaged or of another version is made anew."""
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


def _read_file(db: sqlite3.Connection, log: str, step: int, path: Path, row: tuple[int, ...] | None) -> int:
    """Index a file, or what was appended to it; return its size in bytes."""
    with path.open("rb") as stream:
        stat = os.fstat(stream.fileno())
        appended = row is not None and row[1] == stat.st_ino and stat.st_size > row[2] and row[5] > 0
        start, number = (row[4], row[5]) if row and appended else (0, 0)
        stream.seek(start)
        data = stream.read(stat.st_size - start)
    db.execute("BEGIN IMMEDIATE")
    try:
        found = "SELECT id, inode, size, mtime, read, lines FROM file WHERE log = ? AND step = ?"
        if db.execute(found, (log, step)).fetchone() != row:  # another process has just read this file
            db.execute("COMMIT")
            return stat.st_size
        if row and not appended:
            _forget(db, row[0])
        if row and appended:
            identity = row[0]
            _forget(db, identity, number)  # a line that was half written is read again
        else:
            values = (log, step, path.name, stat.st_ino, 0, 0, 0, 0)
            identity = db.execute(
                "INSERT INTO file (log, step, name, inode, size, mtime, read, lines) VALUES (?,?,?,?,?,?,?,?)", values
            ).lastrowid
        read, lines = _read_lines(db, identity, log, step, data, start, number)
        db.execute(
            "UPDATE file SET size = ?, mtime = ?, read = ?, lines = ? WHERE id = ?",
            (stat.st_size, stat.st_mtime_ns, read, lines, identity),
        )
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    return stat.st_size


def _read_lines(
    db: sqlite3.Connection, file: int, log: str, step: int, data: bytes, start: int, number: int
) -> tuple[int, int]:
    """Index the lines of `data`; return how far whole lines reach, in bytes and in lines."""
    position, whole, whole_lines = start, start, number
    trajectories, turns, tools, bad = [], [], [], []
    identity = db.execute("SELECT coalesce(max(id), 0) FROM trajectory").fetchone()[0]
    for raw in _lines(data):
        number += 1
        offset, position = position, position + len(raw)
        if raw.endswith(b"\n"):
            whole, whole_lines = position, number
        if not raw.strip():
            continue
        try:
            line = index_line(raw, step)
        except ValueError as error:
            bad.append((file, number, str(error)))
            continue
        identity += 1
        trajectories.append((identity, file, number, offset, len(raw), log, *_columns(line)))
        for turn in line.turns:
            place = (identity, log, line.record.step, line.record.category)
            turns.append((*place, turn.turn, turn.label, kind_of(turn.label), turn.blame, turn.rule))
            tools += [(identity, turn.turn, name) for name in turn.tools]
    db.executemany(f"INSERT INTO trajectory VALUES ({','.join('?' * 28)})", trajectories)
    db.executemany("INSERT INTO turn VALUES (?,?,?,?,?,?,?,?,?)", turns)
    db.executemany("INSERT INTO tool VALUES (?,?,?)", tools)
    db.executemany("INSERT INTO bad VALUES (?,?,?)", bad)
    return whole, whole_lines


def _lines(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _columns(line: IndexedLine) -> tuple[object, ...]:
    record = line.record
    return (
        record.step, record.task_id, record.data_source, record.category, record.split, record.sample, record.score,
        record.passed, record.w, record.advantage, record.stop, record.excluded, record.infra, record.omega_version,
        record.turns, record.turns_passed, record.calls, record.errors, record.tokens, record.seconds,
        orjson.dumps(record.labels).decode(), orjson.dumps([turn.blame for turn in line.turns]).decode(),
    )  # fmt: skip


def _forget(db: sqlite3.Connection, file: int, after: int = 0) -> None:
    """Remove a file, or only what it holds after a line."""
    found = "SELECT id FROM trajectory WHERE file = ? AND line > ?"
    for table in ("turn", "tool"):
        db.execute(f"DELETE FROM {table} WHERE trajectory IN ({found})", (file, after))
    for table in ("trajectory", "bad"):
        db.execute(f"DELETE FROM {table} WHERE file = ? AND line > ?", (file, after))
    if not after:
        db.execute("DELETE FROM file WHERE id = ?", (file,))


class Indexer:
    """Keeps the indices of runs up to date, in a thread of its own, until it is closed."""

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
                    logger.warning("the logs of %s cannot be indexed now: %s", index.folder.path, error)
            self._stop.wait(INTERVAL_S)

    def close(self) -> None:
        """End the thread; waits until the file that is being read is done."""
        self._stop.set()
        self._thread.join(timeout=WAIT_S)
