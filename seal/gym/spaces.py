"""A space of texts in any alphabet."""

import string
from typing import Any

from gymnasium.spaces import Text


class AnyText(Text):
    """Texts of up to `max_length` characters of Unicode; samples are of printable ASCII.

    Gymnasium's own `Text` lists its alphabet, and a model may write, and a tool answer, any character.
    """

    def __init__(self, max_length: int, seed: int | None = None) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable, seed=seed)

    def contains(self, x: Any) -> bool:
        """Whether `x` is a text that is short enough."""
        return isinstance(x, str) and len(x) <= self.max_length
