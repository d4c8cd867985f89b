"""The date that the simulators see: one tool, `verify_traveler_information`, compares a birth date with today's.

`as_of` sets the date, so that an episode of another day can be replayed as it went then.
"""

import datetime
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Self

from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING

from env_service.environments.base import EnvironmentEpisode

_set: list[datetime.date] = []


def today() -> datetime.date:
    """The date that was set, else the machine's."""
    return _set[-1] if _set else datetime.date.today()


@contextmanager
def as_of(day: datetime.date) -> Iterator[None]:
    """Within the block, today is `day`, for the simulators too. Not thread-safe."""
    _patch()
    _set.append(day)
    try:
        yield
    finally:
        _set.pop()


class Dated:
    """An episode as played on another day, for a replay."""

    def __init__(self, episode: EnvironmentEpisode, day: datetime.date) -> None:
        on_that_day = as_of(day)  # used as a decorator: every call enters the block again
        self.start, self.step = on_that_day(episode.start), on_that_day(episode.step)
        self.evaluate, self.describe = on_that_day(episode.evaluate), episode.describe


class _Datetime(datetime.datetime):
    @classmethod
    def today(cls) -> Self:
        return cls.combine(today(), datetime.time())


@cache
def _patch() -> None:
    """Make the travel simulator, the only one that reads the date, read it from here."""
    importlib.import_module(CLASS_FILE_PATH_MAPPING["TravelAPI"]).datetime = _Datetime
