"""Two values compared to the last leaf, and where in a run the first difference is."""

import math
from collections.abc import Callable, Mapping, Sequence
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


def difference(
    written: Any, found: Any, path: tuple[str | int, ...] = (), same: Callable[[str], str] = str
) -> Difference | None:
    """The first difference of two JSON values; None if there is none.

    Numbers may differ by rounding. Two texts agree if `same` makes one text of both.
    """
    if isinstance(written, Mapping) and isinstance(found, Mapping):
        for key in dict.fromkeys((*found, *written)):
            both = written.get(key, MISSING), found.get(key, MISSING)
            if (one := difference(*both, (*path, key), same)) is not None:
                return one
        return None
    if isinstance(written, list) and isinstance(found, list):
        return _in_lists(written, found, path, same)
    if isinstance(written, str) and isinstance(found, str):
        agree = written == found or same(written) == same(found)
    elif _number(written) and _number(found):
        agree = _same_number(written, found)
    else:
        agree = written == found and isinstance(written, bool) == isinstance(found, bool)
    return None if agree else Difference(path, written, found)


def _in_lists(
    written: Sequence[Any], found: Sequence[Any], path: tuple[str | int, ...], same: Callable[[str], str]
) -> Difference | None:
    for index, (one, other) in enumerate(zip(written, found, strict=False)):
        if (first := difference(one, other, (*path, index), same)) is not None:
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


class Place(NamedTuple):
    """Where something in a certificate is; what does not apply is None. validation: of a validation, not a step."""

    record: int | None = None
    step: int | None = None
    validation: bool = False
    task: str | None = None
    sample: int | None = None
    turn: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        """``step 3, multi_turn_base_5, sample 2, turn 1, labels[1]``."""
        parts = {
            "record": self.record,
            "validation at step" if self.validation else "step": self.step,
            "": self.task,
            "sample": self.sample,
            "turn": self.turn,
        }
        named = [f"{name} {value}".strip() for name, value in parts.items() if value is not None]
        return ", ".join([*named, *([self.field] if self.field else [])])


class Disagreement(NamedTuple):
    """Something in a certificate that does not hold: where, and what is wrong, as the end of a sentence."""

    place: Place
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


def shown(value: Any) -> str:
    """A value, cut to one line."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def says(difference: Difference) -> str:
    """A difference as the end of a sentence."""
    return f"the certificate says {shown(difference.written)}, the verification finds {shown(difference.found)}"
