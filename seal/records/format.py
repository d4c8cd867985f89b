"""The version of the lines that a run writes."""

from collections.abc import Mapping
from typing import Any

FORMAT = 2
"""The format of the lines that this version writes. Format 2 added to trajectories what a replay needs (`truncated`,
`prompt_tokens`, `length`, `day`), when they took place, and how they were weighted."""

READABLE = (1, FORMAT)
"""The formats that this version reads. Lines without one are the public release's."""


def require_format(value: Mapping[str, Any]) -> None:
    """ValueError for a line in a format that this version does not know."""
    if value.get("format", FORMAT) not in READABLE:
        known = " or ".join(map(str, READABLE))
        raise ValueError(f"has format {value['format']!r} instead of {known}: read it with the SEAL that wrote it")
