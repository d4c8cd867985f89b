"""Which failures count: all that were observed, or only a turn's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from seal import labels as vocabulary
from seal.settings.diagnosis import Blame

BLAMES = get_args(Blame)


def counted_labels(
    labels: Sequence[str], diagnosis: Sequence[Mapping[str, Any]], blame: Blame = "observed"
) -> tuple[str, ...]:
    """Return the labels that C_t, the cues and w count.

    labels and diagnosis (`Diagnosis` as JSON) are those of the turns of one trajectory.
    observed: the labels as they are, as in the paper. own: a failure that the turn
    inherited becomes `inherited`, which is excluded. Raises ValueError for another word.
    """
    if blame not in BLAMES:
        raise ValueError(f"unknown blame {blame!r}; choose one of: {', '.join(BLAMES)}")
    if blame == "observed":
        return tuple(labels)
    inherited = {entry["turn"] for entry in diagnosis if entry.get("blame") == "inherited"}
    return tuple(
        vocabulary.INHERITED if turn in inherited and _fails(label) else label for turn, label in enumerate(labels)
    )


def _fails(label: str) -> bool:
    return label not in vocabulary.EXCLUDED and not vocabulary.get(label).success
