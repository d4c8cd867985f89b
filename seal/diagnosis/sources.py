"""Where labels come from: the diagnosis, or one of the controls that could falsify the method.

If a control helps as much as the diagnosis, the diagnosis is not what helps. A control
replaces the labels of a step before they reach the profile, the interface and the
weights; rewards and rollouts stay. ``docs/how-it-works.md`` says what each one preserves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from seal import labels as vocabulary
from seal.diagnosis.profile import Tally
from seal.diagnosis.rules import rules
from seal.labels import EXCLUDED
from seal.settings.diagnosis import DiagnosisSettings, Source

SOURCES = get_args(Source)

Batch = list[tuple[str, ...]]


@dataclass(frozen=True)
class LabelSource:
    """The labels that training uses, made from those that were diagnosed.

    source, one of SOURCES:
    verifier: as diagnosed. random: each label drawn from the label distribution of the
    profile's window. permuted: the names of the failure labels exchanged by
    :func:`exchanged_names`. Excluded labels stay where they are.
    """

    source: str = "verifier"
    taxonomy: str = "paper"
    seed: int = 0

    @classmethod
    def of(cls, settings: DiagnosisSettings, seed: int) -> LabelSource:
        """The source that a run's settings ask for."""
        return cls(settings.source, settings.taxonomy, seed)

    def relabel(self, batch: Sequence[Sequence[str]], step: int, recent: Tally) -> Batch:
        """The labels by trajectory and turn, in the order of ``batch``; T_j never changes.

        recent: the tally of *diagnosed* labels in the window, this step included. Drawing
        from one's own draws would let the distribution drift. Seed and step fix the draw:
        give the batch in an order that does not depend on timing.
        """
        diagnosed = [tuple(labels) for labels in batch]
        if self.source == "permuted":
            names = exchanged_names(self.taxonomy)
            return _mapped(diagnosed, lambda label: names.get(label, label))
        if self.source == "random":
            rng = random.Random(f"{self.source}:{self.seed}:{step}")
            counts = {label: cell.count for label, cell in recent.labels().items()}
            names, numbers = list(counts), list(counts.values())
            return _mapped(diagnosed, lambda _: rng.choices(names, numbers)[0])
        return diagnosed


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
