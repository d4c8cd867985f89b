"""Material that training tasks never use: a quarter of the words and of the phrases, a fifth of the operation pairs.

The hash of a text decides, so that the same material is held out in every file, whatever its seed. The levels of tasks
use it in steps: `values` has held-out words, `phrases` also takes a third of its phrases from the held-out ones,
`paths` takes all of its phrases from there and has a reserved pair of neighbouring operations.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache

from seal.records.benchmark import Level

WORD_SHARE = 4
"""Every 4th word is held out."""
PHRASE_SHARE = 4
"""Every 4th phrase of a list is held out, but at least one."""
PAIR_SHARE = 5
"""Every 5th ordered pair of operations is reserved."""

HELD_OUT_PHRASES: dict[Level, float] = {"train": 0.0, "values": 0.0, "phrases": 1 / 3, "paths": 1.0}
"""The probability with which a text of a level takes a held-out phrase."""


@cache
def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def word_is_held_out(word: str) -> bool:
    """Return whether training tasks never use a word; capitals do not matter."""
    return _number(f"word {word.lower()}") % WORD_SHARE == 0


def pair_is_reserved(first: str, second: str) -> bool:
    """Return whether the operation `second` never follows `first` in a training task."""
    return _number(f"pair {first} {second}") % PAIR_SHARE == 0


def divide(lists: Mapping[str, Sequence[str]]) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """The phrases of every list for training, and those held out.

    A phrase in several lists is on the same side in all of them. ValueError for a list with an empty side.
    """
    held_out: dict[str, bool] = {}
    divided = {}
    for name, phrases in sorted(lists.items()):
        quota = max(1, len(phrases) // PHRASE_SHARE)
        missing = quota - sum(held_out.get(phrase, False) for phrase in phrases)
        open_phrases = sorted(set(phrases) - held_out.keys(), key=lambda phrase: (_number(f"phrase {phrase}"), phrase))
        held_out |= {phrase: rank < missing for rank, phrase in enumerate(open_phrases)}
        chosen = tuple(tuple(phrase for phrase in phrases if held_out[phrase] == side) for side in (False, True))
        if not all(chosen):
            raise ValueError(f"The phrases {name} cannot be divided: add one that no other list has.")
        divided[name] = chosen
    return divided
