"""Results whose order the benchmark's package takes from Python's hash seed.

`book_flight` prints a set of the classes that it allows, and `edit_ticket` the members of a set of fields that it does
not know. The service's workers have a fixed hash seed, so that all services answer alike; what was recorded with
another one differs in this order alone.
"""

import re

_SET = re.compile(r"\{('[^'{}]*'(?:, '[^'{}]*')+)\}")
_FIELDS = re.compile(r"(?<=Invalid fields for update: )[^\"'\\}\n]+")


def in_one_order(text: str) -> str:
    """The text with the members of such sets sorted."""
    text = _SET.sub(lambda found: "{" + _sorted(found[1]) + "}", text)
    return _FIELDS.sub(lambda found: _sorted(found[0]), text)


def _sorted(members: str) -> str:
    return ", ".join(sorted(members.split(", ")))
