"""Which class of error a failed tool result is, from its public text alone.

The simulators report errors as an ``error`` field, as a ``status`` or ``message``
of a well-formed result, as ``False``, or as the text of an exception. The class
decides which recovery advice phi_err gives; the words that mark each class are
in ``cues.toml`` beside the advice.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources


@lru_cache(maxsize=1)
def _classes() -> tuple[tuple[str, tuple[str, ...]], ...]:
    data = tomllib.loads(resources.files("seal.interface").joinpath("cues.toml").read_text())
    errors: Mapping[str, Mapping[str, object]] = data["errors"]
    return tuple((name, tuple(entry["words"])) for name, entry in errors.items() if "words" in entry)


def error_class(result: str) -> str:
    """The class of an execution error ("execution" when no known wording marks it)."""
    text = result.lower()
    for name, words in _classes():
        if any(word in text for word in words):
            return name
    return "execution"
