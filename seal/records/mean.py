"""A mean and how far it can be trusted."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple, Self


class Mean(NamedTuple):
    """A mean with its standard error (None for a single value)."""

    value: float
    standard_error: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """The mean of the values; None without any."""
        if not values:
            return None
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        return cls(statistics.fmean(values), error)

    def __str__(self) -> str:
        """The mean ± its standard error: ``0.492 ± 0.041``."""
        return f"{self.value:.3f}" + (f" ± {self.standard_error:.3f}" if self.standard_error is not None else "")
