"""Benchmark items that were reported or found to be wrong or unsolvable.

``data/suspected_items.json`` lists them with a reason, and with a link if they were reported.
Figures are printed with and without them; nothing else treats them differently.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from env_service.environments.bfcl.splits import parse_task_id

DEFAULT_PATH = Path(__file__).resolve().parents[2] / "data" / "suspected_items.json"


@dataclass(frozen=True)
class SuspectedItem:
    """One item, why it is suspected, and where it was reported; turn (from 0) is the one at fault."""

    task_id: str
    turn: int
    reason: str
    link: str | None = None

    def concerns(self, prefix: int) -> bool:
        """Whether a prefix of this many turns (-1: the whole task) contains the turn at fault."""
        return prefix < 0 or prefix > self.turn


def load_suspected(path: Path | str = DEFAULT_PATH) -> tuple[SuspectedItem, ...]:
    """The suspected items; ValueError that names the file and the entry at fault."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path} does not exist: name a file like data/suspected_items.json.")
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["items"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not an object with a list 'items' ({error!r}).") from error
    items = []
    for number, entry in enumerate(entries):
        try:
            items.append(SuspectedItem(entry["task_id"], int(entry["turn"]), entry["reason"], entry.get("link")))
            parse_task_id(entry["task_id"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, item {number}: needs task_id, turn and reason ({error}).") from error
    return tuple(items)
