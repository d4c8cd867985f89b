"""Terminal rewards of a trajectory: the paper's binary one and the release's dense modes.

The verifier decides whether a trajectory passes; a dense mode grades the ones that fail. No mode reads labels or the
interface, so nothing that SEAL learns can change a reward.
"""

from collections.abc import Mapping
from typing import Any

from seal.settings.reward import RewardSettings

WEIGHT = 0.5
"""The weight of solved turns (`capped`) or of correct abstentions (`t3rl`) in a dense reward."""


def terminal_reward(evaluation: Mapping[str, Any], settings: RewardSettings, cut: bool = False) -> float:
    """The reward r(tau) in [0, 1] of an evaluated trajectory; cut: it hit a budget, so `RewardSettings.cut` decides."""
    if cut and settings.cut != "verifier":
        return 0.0
    passed = float(bool(evaluation["valid"]))
    if passed or settings.mode == "binary":
        return passed
    info = evaluation["progress_info"]
    solved, scorable = info["passed_turns"], info["scorable_turns"]
    abstained, abstainable = info["passed_irrelevance_turns"], info["irrelevance_turns"]
    if settings.mode == "capped":
        return WEIGHT * solved / max(1, scorable)
    total = scorable + WEIGHT * abstainable
    return (solved + WEIGHT * abstained) / total if total else passed
