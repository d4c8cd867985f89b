"""`seal.reward`: the terminal reward of a training trajectory."""

from typing import Literal

from seal.settings.base import Settings

Mode = Literal["binary", "capped", "t3rl"]
Cut = Literal["verifier", "zero", "silent", "exclude"]


class RewardSettings(Settings):
    """The terminal reward (docs/how-it-works.md)."""

    mode: Mode = "binary"
    """The verdict itself (`binary`), or one of the public release's dense rewards for failed trajectories."""
    cut: Cut = "verifier"
    """The reward of a trajectory that hit a budget: the verifier's; zero; zero for its group's
    baseline, and no gradient (`silent`); or no part in training (`exclude`)."""
