"""What a verification finds: how much agrees, what does not and where, and what was taken as written."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from shelf.lab.certificate.file import Record
from shelf.lab.certificate.places import Difference, Disagreement, Place, says

KEPT = 1000
"""Disagreements that are kept with their places; all of them are counted."""


class Count(NamedTuple):
    """How many of something agree."""

    agree: int = 0
    of: int = 0


@dataclass
class Findings:
    """What has been found so far.

    counts: by what was compared. taken: how many values of which kind were taken as
    written, because nothing could say otherwise. trajectories: of training and
    validation. validated: data source and task of each validated row. digest: the
    hash of the last record that was read.
    """

    run: str = ""
    made_by: str = ""
    steps: int = 0
    trajectories: int = 0
    validations: int = 0
    validated: set[tuple[str, str]] = field(default_factory=set)
    digest: str = ""
    counts: dict[str, Count] = field(default_factory=dict)
    taken: Counter[str] = field(default_factory=Counter)
    _disagreements: list[tuple[int, Disagreement]] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether everything agrees."""
        return not self._disagreements

    @property
    def disagreements(self) -> list[Disagreement]:
        """What does not agree, in the order of the file; at most KEPT."""
        return [each for _, each in sorted(self._disagreements, key=lambda item: item[0])]

    def count(self, what: str, agree: bool) -> bool:
        """Count one comparison; returns whether it agrees."""
        known = self.counts.get(what, Count())
        self.counts[what] = Count(known.agree + agree, known.of + 1)
        return agree

    def add(self, number: int, place: Place, problem: str) -> None:
        """Note a disagreement; number: of the record that it is in, -1 for the file as a whole."""
        if len(self._disagreements) < KEPT:
            self._disagreements.append((number, Disagreement(place, problem)))

    def compare(self, what: str, record: int, place: Place, difference: Difference | None) -> bool:
        """Count a comparison and note its difference, if there is one; returns whether there is none."""
        if not self.count(what, difference is None):
            self.add(record, place._replace(field=difference.field), says(difference))
        return difference is None


def place_of(record: Record) -> Place:
    """Where a record is, as far as it tells by itself."""
    place = Place(record=record.number)
    try:
        value = record.value
    except ValueError:
        return place
    if not isinstance(value, dict):
        return place
    validation = record.kind in ("validation", "figures")
    place = place._replace(step=value.get("step"), validation=validation)
    if record.kind in ("training", "validation"):
        return place._replace(task=value.get("task_id"), sample=value.get("sample"))
    return place._replace(field=None if validation or record.kind == "step" else record.kind)
