"""Two JSON values compared to the last leaf."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

CLOSE = 1e-9
"""Relative: another Python or processor may differ in the last digits of a sum."""

MISSING = "nothing"


class Difference(NamedTuple):
    """A value that is not what the replay gives: its path from the root, what is written and what was recomputed."""

    path: tuple[str | int, ...]
    written: Any
    found: Any

    @property
    def field(self) -> str:
        """The path as text: ``evidence[2].state_match``."""
        text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.path)
        return text.removeprefix(".")


def difference(written: Any, found: Any, path: tuple[str | int, ...] = ()) -> Difference | None:
    """The first difference of two JSON values; None if there is none. Numbers may differ by rounding."""
    if isinstance(written, Mapping) and isinstance(found, Mapping):
        for key in dict.fromkeys((*found, *written)):
            both = written.get(key, MISSING), found.get(key, MISSING)
            if (one := difference(*both, (*path, key))) is not None:
                return one
        return None
    if isinstance(written, list) and isinstance(found, list):
        return _in_lists(written, found, path)
    if _number(written) and _number(found):
        agree = _same_number(written, found)
    else:
        agree = written == found and isinstance(written, bool) == isinstance(found, bool)
    return None if agree else Difference(path, written, found)


def _in_lists(written: Sequence[Any], found: Sequence[Any], path: tuple[str | int, ...]) -> Difference | None:
    for index, (one, other) in enumerate(zip(written, found, strict=False)):
        if (first := difference(one, other, (*path, index))) is not None:
            return first
    if len(written) == len(found):
        return None
    index = min(len(written), len(found))
    ends = (values[index] if index < len(values) else MISSING for values in (written, found))
    return Difference((*path, index), *ends)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same_number(one: float, other: float) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-12) or (math.isnan(one) and math.isnan(other))


def shown(value: Any) -> str:
    """A value, cut to one line."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
