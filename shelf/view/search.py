"""Text search over the trajectories of a run: a scan of the files, which needs no index of words."""

import json
import time
from typing import NamedTuple

import orjson

from shelf.view.index import Index

BUDGET_S = 4.0
"""A search ends after this time and says how far it came."""


class Hits(NamedTuple):
    """The ids of the trajectories that hold a text, and the share of the bytes that was searched."""

    ids: frozenset[int]
    share: float


def search(index: Index, log: str, text: str) -> Hits:
    """The trajectories whose lines hold `text`, newest step first, case ignored for ASCII letters.

    The text is compared with the line as it is logged, so a line break matches its
    escape in JSON.
    """
    # As the trainer writes it, and as a writer that keeps to ASCII does.
    needles = {orjson.dumps(text)[1:-1].lower(), json.dumps(text)[1:-1].encode().lower()}
    folder = index.folder.trajectories if log == "train" else index.folder.validations
    matching: set[int] = set()
    deadline = time.monotonic() + BUDGET_S
    with index.reading() as db:
        files = db.execute("SELECT id, name, size FROM file WHERE log = ? ORDER BY step DESC", (log,)).fetchall()
        total, searched = sum(row["size"] for row in files) or 1, 0
        for file, name, size in map(tuple, files):
            if time.monotonic() > deadline:
                break
            try:
                data = (folder / name).read_bytes().lower()
            except FileNotFoundError:  # a resumed run dropped it
                data = b""
            if any(needle in data for needle in needles):
                lines = db.execute("SELECT id, offset, offset + length FROM trajectory WHERE file = ?", (file,))
                matching |= {
                    line for line, start, end in lines if any(data.find(needle, start, end) >= 0 for needle in needles)
                }
            searched += size
    return Hits(frozenset(matching), searched / total if files else 1.0)
