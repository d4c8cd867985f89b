"""Messages that copy one of the benchmark's."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from env_service.environments.bfcl.catalog import load_tasks

RUN = 8
"""So many words in a row are not a coincidence; a shorter message must be the same as a whole."""

_WORD = re.compile(r"\w+")


def copied_from(users: Iterable[str | None]) -> str | None:
    """The task of the benchmark, of whichever side, of which one of the messages repeats a run of words."""
    index = _benchmark()
    return next((index[run] for user in users if user for run in _runs(user) if run in index), None)


def similarity(one: Iterable[str], other: Iterable[str]) -> float:
    """The share of words that two dialogues have in common, from 0 to 1."""
    a, b = ({word for text in texts for word in _words(text)} for texts in (one, other))
    return len(a & b) / len(a | b) if a | b else 1.0


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = _words(text)
    for start in range(max(1, len(words) - RUN + 1)):
        yield tuple(words[start : start + RUN])


@cache
def _benchmark() -> Mapping[tuple[str, ...], str]:
    return {run: task.id for task in load_tasks().values() for user in task.users if user for run in _runs(user)}
