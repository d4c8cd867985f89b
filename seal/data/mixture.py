"""Rows of several sources in given proportions, spread evenly over the file."""

from collections.abc import Sequence
from fractions import Fraction

from seal.data.rows import TaskRow

_PRECISION = 10**6


def mix(sources: Sequence[tuple[float, Sequence[TaskRow]]]) -> tuple[TaskRow, ...]:
    """As many rows as the weights allow without repeating one, in the proportions of the weights.

    sources: weight and rows of each. The rows of a source are chosen evenly over it and
    keep their order. ValueError if a source would give no row.
    """
    total = sum(Fraction(weight) for weight, _ in sources)
    shares = [(Fraction(weight) / total).limit_denominator(_PRECISION) for weight, _ in sources]
    size = min(Fraction(len(rows)) / share for share, (_, rows) in zip(shares, sources, strict=True))
    placed: list[tuple[Fraction, int, TaskRow]] = []
    for number, (share, (weight, rows)) in enumerate(zip(shares, sources, strict=True)):
        count = int(size * share)
        if count == 0:
            raise ValueError(f"weight {weight:g} leaves no task of source {number + 1}: raise it, or add tasks.")
        placed += [
            (Fraction(2 * position + 1, 2 * count), number, rows[position * len(rows) // count])
            for position in range(count)
        ]
    return tuple(row for _, _, row in sorted(placed, key=lambda each: each[:2]))
