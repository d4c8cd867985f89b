"""How often a suite runs the official tool, and how long it waits: the same for every suite."""

from collections.abc import Callable
from dataclasses import dataclass, field

from shelf.suites.process import Deadlines

Progress = Callable[[int, int], None]
"""Told how many items are finished, and of how many."""


@dataclass(frozen=True)
class Attempts:
    """rounds: runs of the tool, each for what has failed technically so far.

    wait_s: for an endpoint that is down, before each round. deadlines: of one run of the tool.
    """

    rounds: int = 3
    wait_s: float = 120.0
    deadlines: Deadlines = field(default_factory=lambda: Deadlines(total_s=24 * 3600.0, stall_s=1800.0))

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError("--attempts must be at least 1.")
