"""How long the service holds back an answer: a setting for benchmarks, because the simulators answer at once."""

import math
from random import Random


class Delay:
    """A log-normal delay, the shape that calls to real tools have: most are short, some are very long.

    median: seconds; 0 delays nothing. spread: standard deviation of the delay's natural logarithm.
    """

    def __init__(self, median: float, spread: float):
        self._median, self._spread = median, spread

    def seconds(self, *place: str) -> float:
        """The delay of one call in seconds; the same place gives the same one."""
        if not self._median:
            return 0.0
        return Random("/".join(place)).lognormvariate(math.log(self._median), self._spread)
