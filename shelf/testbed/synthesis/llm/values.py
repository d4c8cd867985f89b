"""Values of arguments, and whether a text says them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_SHORT = 4
"""Texts below this length must stand as words of their own."""


def leaves(value: Any) -> Iterator[Any]:
    """The texts, numbers and truth values in an argument."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def normal(value: Any) -> str:
    """A leaf such that equal values have equal texts: capitals and the point of a whole number do not matter."""
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int | float):
        return f"{float(value):.10g}"
    return str(value).strip().casefold()


def says(text: str, value: Any) -> bool:
    """Whether a text says every leaf of a value; truth values are said by meaning, so always."""
    return all(isinstance(leaf, bool) or leaf is None or _pattern(leaf).search(text) for leaf in leaves(value))


def without(text: str, values: Iterable[Any]) -> str:
    """The text with a blank in place of every leaf of the values, the longest first."""
    found = {str(leaf): leaf for value in values for leaf in leaves(value) if not isinstance(leaf, bool) and leaf != ""}
    for _, leaf in sorted(found.items(), key=lambda item: -len(item[0])):
        text = _pattern(leaf).sub(" ", text)
    return text


def _pattern(leaf: Any) -> re.Pattern[str]:
    if isinstance(leaf, int | float):
        forms = {str(leaf), f"{leaf:g}", f"{leaf:,}", f"{leaf:.2f}", f"{leaf:,.2f}"}
        forms |= {str(int(leaf)), f"{int(leaf):,}"} if float(leaf).is_integer() else set()
        return re.compile(rf"(?<![\w.])(?:{_any(forms)})(?![\w]|[.,]\d)")
    text = re.escape(str(leaf).strip()).replace(r"\ ", r"\s+")
    return re.compile(rf"(?<!\w){text}(?!\w)" if len(str(leaf)) < _SHORT else text, re.IGNORECASE)


def _any(forms: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, forms), key=len, reverse=True))
