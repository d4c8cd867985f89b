"""The comparison of two JSON values, leaf by leaf."""

import math
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

CLOSE = 1e-9
"""The relative tolerance: another Python or processor may differ in the last digits of a sum."""

MISSING = "nothing"


class Difference(NamedTuple):
    """A value that differs from the replay's: its place, e.g. ``evidence[2].state_match``, and both values."""

    field: str
    written: Any
    found: Any


def difference(written: Any, found: Any, path: str = "") -> Difference | None:
    """The first difference between two JSON values; None if there is none. Rounding differences do not count."""
    if isinstance(written, list) and isinstance(found, list):
        written, found = dict(enumerate(written)), dict(enumerate(found))
    if isinstance(written, Mapping) and isinstance(found, Mapping):
        for key in dict.fromkeys((*found, *written)):
            place = f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}"
            if one := difference(written.get(key, MISSING), found.get(key, MISSING), place):
                return one
        return None
    if _number(written) and _number(found):
        agree = _same_number(written, found)
    else:
        agree = written == found and isinstance(written, bool) == isinstance(found, bool)
    return None if agree else Difference(path.removeprefix("."), written, found)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same_number(one: float, other: float) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    if any(abs(number) > sys.float_info.max for number in (one, other)):  # isclose does not accept such an integer
        return one == other
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-12) or (math.isnan(one) and math.isnan(other))


def as_text(value: Any) -> str:
    """A value, cut to one line."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
