"""JSON out of what a model says around it."""

import json
import re
from typing import Annotated, TypeVar

from pydantic import BaseModel, StringConstraints, ValidationError

_DECODER = json.JSONDecoder()
_MOST_STARTS = 200

Shape = TypeVar("Shape", bound=BaseModel)
UserMessage = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]
"""A user's message of one turn."""


def read_answer(text: str, shape: type[Shape]) -> Shape | None:
    """The last JSON object in a text that has the first field of `shape`; None without one, or for another shape.

    Thoughts (up to ``</think>``), prose and code fences around it do not matter.
    """
    text, key = text.rpartition("</think>")[2], next(iter(shape.model_fields))
    last, end = None, 0
    for start in [match.start() for match in re.finditer(r"\{", text)][:_MOST_STARTS]:
        if start < end:
            continue  # inside an object that was read
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        last = value if isinstance(value, dict) and key in value else last
    try:
        return None if last is None else shape.model_validate(last)
    except ValidationError:
        return None
