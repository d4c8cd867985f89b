"""Terminal rewards of a trajectory: the paper's binary one and the release's dense modes.

The verifier decides whether a trajectory passes; a dense mode grades the
ones that fail. No mode reads labels or the interface, so nothing that SEAL
learns can change a reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MODES = ("binary", "capped", "t3rl")
CUT = ("verifier", "zero", "exclude")


@dataclass(frozen=True)
class RewardSettings:
    """mode: binary (V itself), capped or t3rl; weight and cap shape the dense modes.

    cut: the reward of a training trajectory that hit a budget: the verifier's (a
    dense mode credits its finished turns), zero, or none at all, because it is left
    out of training (exclude).
    """

    mode: str = "binary"
    weight: float = 0.5
    cap: float = 0.5
    cut: str = "verifier"

    def __post_init__(self):
        if self.mode not in MODES:
            raise ValueError(f"seal.reward.mode is {self.mode!r}; choose one of {', '.join(MODES)}.")
        if self.cut not in CUT:
            raise ValueError(f"seal.reward.cut is {self.cut!r}; choose one of {', '.join(CUT)}.")
        if not 0 <= self.cap <= 1 or not 0 <= self.weight <= 1:
            raise ValueError("seal.reward.weight and seal.reward.cap must lie between 0 and 1.")


def terminal_reward(evaluation: Mapping[str, Any], settings: RewardSettings, cut: bool = False) -> float:
    """Return the reward r(tau) in [0, 1] of an evaluated trajectory (method, section 1).

    cut: it hit a budget, so `RewardSettings.cut` decides.
    """
    if cut and settings.cut != "verifier":
        return 0.0
    passed = float(bool(evaluation["valid"]))
    if settings.mode == "binary":
        return passed
    info = evaluation["bfcl_progress_info"]
    solved, scorable = info["passed_turns"], info["scorable_turns"]
    abstained, abstainable = info["passed_irrelevance_turns"], info["irrelevance_turns"]
    if settings.mode == "capped":
        return passed or min(settings.cap, settings.weight * solved / max(1, scorable))
    total = scorable + settings.weight * abstainable
    return (solved + settings.weight * abstained) / total if total else passed
