"""Terminal rewards: the benchmark's verdict, and the two denser ones of the public release.

Binary is the method's reward (paper, section 3.1). The others are a recipe's choice
and are computed beside the verdict, which stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seal.diagnosis.config import read_settings
from seal.diagnosis.evidence import TurnEvidence
from seal.diagnosis.labels import CORRECT_ABSTENTION, PASS
from seal.diagnosis.rules import diagnose

MODES = ("binary", "capped", "t3rl")


@dataclass(frozen=True)
class RewardSettings:
    """mode: binary, capped or t3rl. cap, weight: of capped. abstention: the weight w of t3rl."""

    mode: str = "binary"
    cap: float = 0.0
    weight: float = 1.0
    abstention: float = 0.5

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"reward: unknown mode {self.mode!r}; choose one of: {', '.join(MODES)}")
        if not 0 <= self.cap < 1 or self.weight < 0 or self.abstention < 0:
            raise ValueError("reward: needs 0 <= cap < 1, weight >= 0 and abstention >= 0")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> RewardSettings:
        """Settings from a recipe's section; ValueError names what is wrong."""
        return read_settings(cls, config, "reward")


def terminal_reward(valid: bool, turns: Sequence[TurnEvidence], settings: RewardSettings) -> float:
    """The terminal reward in [0, 1] of an episode with this verdict and evidence.

    capped: 1 when valid, else min(cap, weight x passed / scorable turns). t3rl: (passed
    + w abstained) / (scorable + w irrelevant), w the weight of abstention. A turn is
    scorable when its reference calls something, else irrelevant. A turn that did not
    take place counts in the denominators only.
    """
    if settings.mode == "binary":
        return float(valid)
    labels = [diagnosis.label for diagnosis in diagnose(turns)]
    passed, abstained = labels.count(PASS), labels.count(CORRECT_ABSTENTION)
    scorable = sum(turn.expected_calls > 0 for turn in turns)
    if settings.mode == "capped":
        progress = passed / scorable if scorable else 0.0
        return 1.0 if valid else min(settings.cap, settings.weight * progress)
    total = scorable + settings.abstention * (len(turns) - scorable)
    return (passed + settings.abstention * abstained) / total if total else float(valid)
