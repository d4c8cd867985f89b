"""Agreement of labels with the expected ones: a confusion matrix with precision and recall."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Judged:
    """One turn with a known fault: where, the fault's kind, the label that it must get and the one that it got."""

    task_id: str
    turn: int
    kind: str
    expected: str
    found: str
    reason: str = ""


@dataclass(frozen=True)
class Confusion:
    """Counts of (expected, found) pairs of labels."""

    counts: Counter[tuple[str, str]]

    @classmethod
    def of(cls, judged: Iterable[Judged]) -> Self:
        """Count the pairs."""
        return cls(Counter((turn.expected, turn.found) for turn in judged))

    def labels(self, order: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the labels that occur: those of ``order`` first, the others sorted."""
        seen = {label for pair in self.counts for label in pair}
        return (*(label for label in order if label in seen), *sorted(seen - set(order)))

    def precision(self, label: str) -> float:
        """Return the share of the turns with this label that should have it; nan when none has it."""
        return self._share(label, sum(n for (_, found), n in self.counts.items() if found == label))

    def recall(self, label: str) -> float:
        """Return the share of the turns that should have this label and have it; nan when none should."""
        return self._share(label, sum(n for (expected, _), n in self.counts.items() if expected == label))

    def _share(self, label: str, total: int) -> float:
        return self.counts[label, label] / total if total else float("nan")
