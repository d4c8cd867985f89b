"""Where labels come from: the diagnosis, or one of the controls that could falsify the method.

If a control helps as much as the diagnosis, the diagnosis is not what helps. A control
replaces the labels of a step before they reach the profile, the interface and the
weights; rewards and rollouts stay. ``docs/diagnosis.md`` says what each one preserves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from seal import labels as vocabulary
from seal.diagnosis.profile import Tally
from seal.diagnosis.rules import rules
from seal.labels import EXCLUDED, STATE_MISMATCH
from seal.settings.diagnosis import DiagnosisSettings, Source

SOURCES = get_args(Source)

Batch = list[tuple[str, ...]]


@dataclass(frozen=True)
class LabelSource:
    """The labels that training uses, made from those that were diagnosed.

    source, one of SOURCES:
    verifier: as diagnosed. random: each label drawn from the label distribution of the
    profile's window. constant: the label ``constant`` everywhere. shuffled: whole label
    sequences exchanged among the step's trajectories with as many labels that count.
    permuted: the names of the failure labels exchanged by :func:`exchanged_names`.
    noise: afterwards, this share of the labels becomes another label of the taxonomy.
    Excluded labels stay where they are.
    ValueError for a constant that is not a label of the taxonomy.
    """

    source: str = "verifier"
    constant: str = STATE_MISMATCH
    noise: float = 0.0
    taxonomy: str = "paper"
    seed: int = 0

    def __post_init__(self) -> None:
        names = taxonomy_labels(self.taxonomy)
        if self.constant not in names:
            raise ValueError(f"constant is {self.constant!r}; choose one of {', '.join(names)}")

    @classmethod
    def of(cls, settings: DiagnosisSettings, seed: int) -> LabelSource:
        """The source that a run's settings ask for; ValueError when their constant is not a label of the taxonomy."""
        return cls(settings.source, settings.constant, settings.noise, settings.taxonomy, seed)

    def relabel(self, batch: Sequence[Sequence[str]], step: int, recent: Tally) -> Batch:
        """The labels by trajectory and turn, in the order of ``batch``; T_j never changes.

        recent: the tally of *diagnosed* labels in the window, this step included. Drawing
        from one's own draws would let the distribution drift. Seed and step fix the draw:
        give the batch in an order that does not depend on timing.
        """
        diagnosed = [tuple(labels) for labels in batch]
        rng = random.Random(f"{self.source}:{self.seed}:{step}")
        return _with_noise(self._replaced(diagnosed, rng, recent), self.noise, taxonomy_labels(self.taxonomy), rng)

    def _replaced(self, diagnosed: Batch, rng: random.Random, recent: Tally) -> Batch:
        if self.source == "constant":
            return _mapped(diagnosed, lambda _: self.constant)
        if self.source == "permuted":
            names = exchanged_names(self.taxonomy)
            return _mapped(diagnosed, lambda label: names.get(label, label))
        if self.source == "random":
            counts = {label: cell.count for label, cell in recent.labels().items()}
            names, numbers = list(counts), list(counts.values())
            return _mapped(diagnosed, lambda _: rng.choices(names, numbers)[0])
        return _shuffled(diagnosed, rng) if self.source == "shuffled" else diagnosed


def taxonomy_labels(taxonomy: str) -> tuple[str, ...]:
    """Labels that a taxonomy gives and that count, in its order; ValueError when it is unknown."""
    return tuple(dict.fromkeys(rule.label for rule in rules(taxonomy) if rule.label not in EXCLUDED))


def exchanged_names(taxonomy: str) -> Mapping[str, str]:
    """The fixed permutation of the failure labels of a taxonomy: who takes whose place.

    The labels in order of utility are rotated by half their number, so that no label
    keeps its name, its cues or, among the built-in labels, its utility.
    """
    failures = [label for label in taxonomy_labels(taxonomy) if not vocabulary.get(label).success]
    failures.sort(key=lambda label: (-vocabulary.get(label).utility, label))
    half = len(failures) // 2
    return dict(zip(failures, failures[half:] + failures[:half], strict=True))


def _mapped(batch: Batch, name: Callable[[str], str]) -> Batch:
    return [tuple(label if label in EXCLUDED else name(label) for label in labels) for labels in batch]


def _shuffled(batch: Batch, rng: random.Random) -> Batch:
    counted = [[label for label in labels if label not in EXCLUDED] for labels in batch]
    by_length: dict[int, list[int]] = {}
    for index, labels in enumerate(counted):
        by_length.setdefault(len(labels), []).append(index)
    taken = {}
    for places in by_length.values():
        origins = rng.sample(places, len(places))
        taken.update({to: iter(counted[origin]) for to, origin in zip(places, origins, strict=True)})
    return [
        tuple(label if label in EXCLUDED else next(taken[index]) for label in labels)
        for index, labels in enumerate(batch)
    ]


def _with_noise(batch: Batch, share: float, names: Sequence[str], rng: random.Random) -> Batch:
    places = [(row, turn) for row, labels in enumerate(batch) for turn, z in enumerate(labels) if z not in EXCLUDED]
    corrupted = [list(labels) for labels in batch]
    for row, turn in rng.sample(places, round(share * len(places))):
        corrupted[row][turn] = rng.choice([name for name in names if name != corrupted[row][turn]])
    return [tuple(labels) for labels in corrupted]
