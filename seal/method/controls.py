"""The labels that training uses: diagnosed, or of a control, which could falsify the method (docs/how-it-works.md)."""

import random
from collections.abc import Callable, Mapping, Sequence

from seal.method import labels as vocabulary
from seal.method.diagnosis.extension import Extension
from seal.method.labels import EXCLUDED
from seal.method.profile import Rollout, Tally
from seal.settings.diagnosis import DiagnosisSettings

Batch = list[tuple[str, ...]]

_DRAWS = 1000
"""The most permutations that are drawn to find one that changes every utility; if none does, the last one stands."""


def relabel(
    batch: Sequence[Sequence[str]],
    recent: Tally,
    settings: DiagnosisSettings,
    extension: Extension,
    seed: int,
    step: int,
) -> Batch:
    """The labels of `settings.source` by trajectory and turn, in the order of ``batch``; T_j never changes.

    verifier: as diagnosed. random: drawn in the proportions of `recent`, the tally of *diagnosed* labels in the window,
    this step included (those of its own draws would drift), or of `batch` if the window has none. permuted: by
    :func:`exchanged_names`. Excluded labels stay. Seed and step fix the draw: give the batch in an order that does not
    depend on timing.
    """
    diagnosed = [tuple(labels) for labels in batch]
    if settings.source == "permuted":
        names = exchanged_names(extension, seed)
        return _mapped(diagnosed, lambda label: names.get(label, label))
    if settings.source == "random":
        rng = random.Random(f"random:{seed}:{step}")
        seen = recent.labels() or Tally.of(Rollout("", labels, 0.0) for labels in diagnosed).labels()
        return _mapped(diagnosed, lambda _: rng.choices([*seen], [cell.count for cell in seen.values()])[0])
    return diagnosed


def exchanged_names(extension: Extension, seed: int) -> Mapping[str, str]:
    """The run's permutation of the failure labels of an extension: the new name of each label.

    A ring in an order that the seed draws, so that no label keeps its name or its cues, and no built-in label keeps
    its utility. ValueError unless there are two to exchange.
    """
    failures, rng = sorted(extension.failures), random.Random(f"permuted:{seed}")
    if len(failures) < 2:
        raise ValueError(f"permuted exchanges failure labels, and the {extension.name} taxonomy has {len(failures)}")
    for _ in range(_DRAWS):
        ring = rng.sample(failures, len(failures))
        names = dict(zip(ring, ring[1:] + ring[:1], strict=True))
        if all(vocabulary.get(a).utility != vocabulary.get(b).utility for a, b in names.items()):
            break
    return names


def _mapped(batch: Batch, name: Callable[[str], str]) -> Batch:
    return [tuple(label if label in EXCLUDED else name(label) for label in labels) for labels in batch]
