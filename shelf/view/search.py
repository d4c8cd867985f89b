"""Text search over the trajectories of a run: a scan of the files, which needs no index of words."""

import json
import time
from bisect import bisect_right
from collections.abc import Sequence, Set
from pathlib import Path
from typing import NamedTuple

import orjson

from shelf.view.index import Index

BUDGET_S = 4.0
"""A search ends after this time and says how far it came."""


class Found(NamedTuple):
    """The ids of the trajectories that hold a text, and the share of the bytes that was searched."""

    ids: frozenset[int]
    share: float


def search(index: Index, log: str, text: str) -> Found:
    """The trajectories whose lines hold `text`, newest step first, case ignored for ASCII letters.

    The text is compared with the line as it is logged, so a line break matches its
    escape in JSON.
    """
    # As the trainer writes it, and as a writer that keeps to ASCII does.
    needles = {orjson.dumps(text)[1:-1].lower(), json.dumps(text)[1:-1].encode().lower()}
    folder = index.folder.trajectories if log == "train" else index.folder.validations
    with index.reading() as db:
        files = db.execute("SELECT id, name, size FROM file WHERE log = ? ORDER BY step DESC", (log,)).fetchall()
        total, searched = sum(row["size"] for row in files) or 1, 0
        found: set[int] = set()
        deadline = time.monotonic() + BUDGET_S
        for identity, name, size in map(tuple, files):
            if time.monotonic() > deadline:
                break
            rows = db.execute(
                "SELECT offset, id FROM trajectory WHERE file = ? ORDER BY offset", (identity,)
            ).fetchall()
            found.update(_in_file(folder / name, needles, [row[0] for row in rows], [row[1] for row in rows]))
            searched += size
    return Found(frozenset(found), searched / total if files else 1.0)


def _in_file(path: Path, needles: Set[bytes], offsets: Sequence[int], ids: Sequence[int]) -> set[int]:
    found: set[int] = set()
    if not offsets:
        return found
    try:
        data = path.read_bytes().lower()
    except FileNotFoundError:  # a resumed run dropped it
        return found
    for needle in needles:
        position = offsets[0]
        while (match := data.find(needle, position)) >= 0:
            at = bisect_right(offsets, match) - 1
            found.add(ids[at])
            if at + 1 == len(offsets):
                break
            position = offsets[at + 1]
    return found
