"""The version of the lines that a run writes."""

from collections.abc import Mapping
from typing import Any

FORMAT = 1
"""The format of the lines that this version writes. Lines without one are of earlier versions or the public release."""


def require_format(value: Mapping[str, Any]) -> None:
    """ValueError for a line in a format that this version does not know."""
    if value.get("format", FORMAT) != FORMAT:
        raise ValueError(f"has format {value['format']!r} instead of {FORMAT}: read it with the SEAL that wrote it")
