"""JSON out of what a model says around it."""

import json
import re
from typing import Any

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
_DECODER = json.JSONDecoder()
_MOST_STARTS = 200


def object_with(text: str, key: str) -> dict[str, Any] | None:
    """The last JSON object in a text that has this key; None if there is none.

    Thoughts (up to ``</think>``), prose and code fences around it do not matter.
    """
    text = text.rpartition("</think>")[2]
    for candidate in (*reversed(_FENCE.findall(text)), text):
        if (found := _last_object(candidate, key)) is not None:
            return found
    return None


def _last_object(text: str, key: str) -> dict[str, Any] | None:
    starts = [match.start() for match in re.finditer(r"\{", text)]
    found, end = None, 0
    for start in starts[:_MOST_STARTS]:
        if start < end:
            continue  # inside an object that was read
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and key in value:
            found = value
    return found
