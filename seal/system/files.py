"""Files that are written completely or not at all, and their hashes."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOM = 1 << 20
"""Bytes: a disk with less free space is full."""
LARGE, HEAD = 1 << 30, 1 << 20
"""Bytes: of a file from LARGE on, `quick_sha256` reads the first HEAD."""


def full_folder(words: Iterable[str]) -> Path | None:
    """The folder of a command line, or of this process, whose disk is full: the system's error does not name it."""
    named = [Path(word.rpartition("=")[2]).absolute() for word in (*words, tempfile.gettempdir(), "")]
    there = (next(folder for folder in (place, *place.parents) if os.path.isdir(folder)) for place in named)
    return next((folder for folder in there if shutil.disk_usage(folder).free < ROOM), None)


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """The path of a draft that replaces the file at the end of the block; missing folders are made.

    Readers see the old file or the new one. If the block raises, the old one stays and the draft is removed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    try:
        yield draft
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    draft.replace(path)


def write_text(text: str, path: Path | str, *, flush: bool = False) -> None:
    """Write a text file in one move (see `replacing`); with `flush` it is on the disk when this returns."""
    with replacing(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.write(text)
        if flush:
            file.flush()
            os.fsync(file.fileno())


def write_json(value: Any, path: Path | str) -> None:
    """Write readable JSON; the same value gives the same bytes."""
    write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", path)


def write_jsonl(lines: Iterable[Mapping[str, Any]], path: Path | str) -> None:
    """Write one JSON object per line."""
    write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), path)


def json_hash(value: Any) -> str:
    """sha256 of a value in canonical JSON."""
    return text_sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path | str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def quick_sha256(path: Path) -> str:
    """sha256 of a file; of a large one, of its size and first bytes: safetensors start with their table of tensors."""
    if (size := path.stat().st_size) < LARGE:
        return file_sha256(path)
    with path.open("rb") as file:
        return hashlib.sha256(str(size).encode() + file.read(HEAD)).hexdigest()
