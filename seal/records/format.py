"""The version of the lines that a run writes."""

from collections.abc import Mapping
from typing import Any

FORMAT = 3
"""The format of the lines that this version writes. Format 2 added to trajectories what a replay needs (`truncated`,
`prompt_tokens`, `length`, `day`), when they took place, and how they were weighted. Format 3 calls the sides of a
withdrawal `shown` and `hidden`; before, `withdrawn` was "" and "*"."""

READABLE = (1, 2, FORMAT)
"""The formats that this version reads. Lines without one are the public release's."""


def upgrade(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """A trajectory's line in the words of this version."""
    sides = {"": "shown", "*": "hidden"}
    return {**line, "withdrawal": sides.get(old, old)} if (old := line.get("withdrawn")) is not None else line


def require_format(value: Mapping[str, Any]) -> None:
    """ValueError for a line in a format that this version does not know."""
    if value.get("format", FORMAT) not in READABLE:
        known = ", ".join(map(str, READABLE))
        raise ValueError(f"has format {value['format']!r} instead of {known}: read it with the SEAL that wrote it")
