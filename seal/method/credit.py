"""The turns of a failed trajectory that its advantage reaches. The paper: all of them."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from seal.settings.reweighting import Credit


def reach(diagnosis: Sequence[Mapping[str, Any]], credit: Credit, rng: random.Random) -> int | None:
    """The last turn of a failed trajectory that its advantage reaches, from its diagnosis by turn; None: every turn.

    After the first turn that failed by the policy's own doing the reward is 0 whatever it says, so these tokens add
    noise to GRPO's gradient and nothing to its mean. Without such a turn nothing is cut, by the controls neither.
    """
    own = [turn["turn"] for turn in diagnosis if turn["blame"] == "own"]
    if credit == "whole" or not own:
        return None
    if credit == "drawn":
        return rng.choice(diagnosis)["turn"]
    return own[0] if credit == "failed" else diagnosis[0]["turn"]
