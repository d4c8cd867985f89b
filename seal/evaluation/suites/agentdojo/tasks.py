"""The user tasks of AgentDojo, and the hash of what they are made of."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from seal.files import file_sha256, json_hash

SUITES = {"workspace": 40, "travel": 20, "banking": 16, "slack": 21}
"""The number of user tasks of each suite; their ids count from 0."""


class Attempt(NamedTuple):
    """Which attempt at which task it is."""

    suite: str
    task: str
    sample: int


def planned(suites: Sequence[str], trials: int, limit: int | None = None) -> list[Attempt]:
    """The attempts at the tasks of some suites, at most `limit` tasks of each."""
    return [
        Attempt(suite, f"user_task_{number}", sample)
        for suite in suites
        for sample in range(trials)
        for number in range(min(SUITES[suite], limit or SUITES[suite]))
    ]


def data_hash(package: Path) -> str:
    """sha256 over the environments' data, and over the code that defines tools and tasks."""
    files = sorted([*package.glob("data/**/*.yaml"), *package.glob("default_suites/**/*.py")])
    return json_hash({path.relative_to(package).as_posix(): file_sha256(path) for path in files})
