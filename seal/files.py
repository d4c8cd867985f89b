"""Small files written whole or not at all, and their hashes."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def write_text(text: str, path: Path | str, *, flush: bool = False) -> None:
    """Write a text file in one move (folders are made): a reader never sees half of it.

    With `flush` it is on the disk when this returns.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        if flush:
            file.flush()
            os.fsync(file.fileno())
    partial.replace(path)


def write_json(value: Any, path: Path | str) -> None:
    """Write readable JSON, the same to the byte for the same value."""
    write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", path)


def json_hash(value: Any) -> str:
    """sha256 of a value in canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def file_sha256(path: Path | str) -> str:
    """sha256 of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
