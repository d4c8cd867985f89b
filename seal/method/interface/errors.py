"""The class of error of a failed tool result, from its public text.

The class decides which recovery advice phi_err gives; the patterns of each are in ``cues.toml`` beside the advice.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from seal.method.interface.secrets import scalars
from seal.method.interface.wording import wording


@cache
def _classes() -> tuple[tuple[str, re.Pattern[str], frozenset[str]], ...]:
    """Name, pattern and tools (none: every tool) of each class."""
    return tuple(
        (name, re.compile("|".join(entry["patterns"])), frozenset(entry.get("tools", ())))
        for name, entry in wording()["errors"].items()
        if "patterns" in entry
    )


def error_class(tool: str, result: str, arguments: Mapping[str, Any]) -> str:
    """The class of an execution error ("execution" when no known message marks it).

    Values of the call's ``arguments`` are removed first: messages repeat them, and a file may be called "not found".
    """
    text = bare = result.lower()
    for value in reversed([value for value in scalars(arguments) if isinstance(value, str) and value]):
        bare = re.sub(rf"(?<!\w){re.escape(value.lower())}(?!\w)", "", bare, count=1)
    return _match(tool, bare) or _match(tool, text) or "execution"  # a value may be a word of the message proper


def _match(tool: str, text: str) -> str | None:
    fitting = (name for name, pattern, tools in _classes() if (not tools or tool in tools) and pattern.search(text))
    return next(fitting, None)
