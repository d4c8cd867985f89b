"""Synthesised tasks of every level, made once."""

from collections.abc import Sequence

import pytest

from env_service.environments.bfcl.task_file import MadeTask
from seal.records.benchmark import LEVELS
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise

PER_LEVEL = 80


@pytest.fixture(scope="session")
def tasks_by_level() -> dict[str, Sequence[MadeTask]]:
    return {level: tuple(synthesise(Grammar(), PER_LEVEL, 7, level)) for level in LEVELS}


@pytest.fixture(scope="session")
def tasks(tasks_by_level) -> Sequence[MadeTask]:
    return tuple(task for made in tasks_by_level.values() for task in made)
