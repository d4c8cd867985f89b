"""How long the service holds back an answer: a setting for benchmarks, because the simulators answer at once."""

import math
from hashlib import sha256
from statistics import NormalDist


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
        digest = sha256("/".join(place).encode()).digest()
        # Strictly between 0 and 1, where the quantile is finite.
        share = (int.from_bytes(digest[:6]) + 0.5) / 2**48
        return self._median * math.exp(self._spread * NormalDist().inv_cdf(share))
