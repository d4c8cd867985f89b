"""Where labels come from: the diagnosis, or one of the controls that could falsify the method.

If random, constant or shuffled labels help as much as diagnosed ones, the
diagnosis is not what helps. A control replaces the labels of a step before they
reach the profile, the interface and the weights; reward and rollouts stay.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import get_args

from seal.diagnosis.profile import Profile
from seal.labels import EXCLUDED, STATE_MISMATCH
from seal.settings.diagnosis import Source

SOURCES = get_args(Source)


def relabel(
    batch: Sequence[Sequence[str]],
    source: str,
    seed: int,
    step: int,
    profile: Profile,
    constant: str = STATE_MISMATCH,
) -> list[tuple[str, ...]]:
    """The labels that training uses, by trajectory and turn, in the order of ``batch``.

    verifier: as diagnosed. random: each label drawn from the run's label distribution
    (``profile.total()``; the batch's own before anything was seen). constant: the one
    label ``constant``. shuffled: whole label sequences permuted among the step's
    trajectories. Excluded labels stay where they are, and a sequence that holds one is
    not shuffled. Seed and step fix the draw: give the batch in an order that does not
    depend on timing. ``profile`` is one of diagnosed labels, not of those that this
    function gave: drawing from one's own draws would let the distribution drift.
    Raises ValueError for an unknown source.
    """
    if source not in SOURCES:
        raise ValueError(f"unknown diagnosis source {source!r}; choose one of: {', '.join(SOURCES)}")
    diagnosed = [tuple(labels) for labels in batch]
    rng = random.Random(f"{source}:{seed}:{step}")
    if source == "constant":
        return [tuple(z if z in EXCLUDED else constant for z in labels) for labels in diagnosed]
    if source == "random":
        counts = {z: cell.count for z, cell in profile.total().labels().items()} or _counts(diagnosed)
        names, numbers = list(counts), list(counts.values())
        return [tuple(z if z in EXCLUDED else rng.choices(names, numbers)[0] for z in labels) for labels in diagnosed]
    if source == "shuffled":
        places = [index for index, labels in enumerate(diagnosed) if not EXCLUDED & set(labels)]
        moved = places.copy()
        rng.shuffle(moved)
        shuffled = diagnosed.copy()
        for to, origin in zip(places, moved, strict=True):
            shuffled[to] = diagnosed[origin]
        return shuffled
    return diagnosed


def _counts(batch: Sequence[Sequence[str]]) -> dict[str, int]:
    pooled = sorted(z for labels in batch for z in labels if z not in EXCLUDED)
    return {z: pooled.count(z) for z in dict.fromkeys(pooled)}
