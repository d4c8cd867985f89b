"""Random Omegas: what a warm start shows a policy so that it has met every cue."""

from __future__ import annotations

import random

from seal.interface.cues import EVERYWHERE, Omega, catalogue


def random_omega(rng: random.Random, share: float = 0.3) -> Omega:
    """An Omega with each cue of the paper's taxonomy on with probability ``share``, everywhere; version 0."""
    names = [cue.name for cue in catalogue().values() if cue.taxonomy in (None, "paper") and rng.random() < share]
    return Omega.of({EVERYWHERE: names})
