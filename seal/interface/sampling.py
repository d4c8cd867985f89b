"""Random Omegas: what a warm start shows a policy so that it has met every cue."""

from __future__ import annotations

import random

from seal.interface.cues import EVERYWHERE, Omega, catalogue


def random_omega(rng: random.Random, share: float = 0.3) -> Omega:
    """An Omega with each cue on with probability ``share``, for every category; version 0."""
    names = [name for name in catalogue() if rng.random() < share]
    return Omega.of({EVERYWHERE: names})
