"""What a writer is: it puts a call path into a user's words."""

import random
from typing import Protocol

from seal.diagnosis.categories import Level
from shelf.testbed.synthesis.path import CallPath


class Writer(Protocol):
    """Writes the user's messages; name: what the provenance of a task calls it."""

    name: str

    def write(self, path: CallPath, level: Level, rng: random.Random) -> tuple[str | None, ...]:
        """One message per turn of the path, None for the turn in which the environment reveals tools."""
