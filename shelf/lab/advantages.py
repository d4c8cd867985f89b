"""The group-relative advantages of GRPO, from rewards only (paper, section 2)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from seal.records.trajectory import TrajectoryRecord
from seal.system.grouping import grouped
from seal.training.closed_loop import Group, plain_advantages, relative

_ROUNDING = 0.25
"""In a group of equal rewards, verl divides the rounding error of a float32 mean by its epsilon."""


def follow_from_rewards(config: Mapping[str, Any]) -> bool:
    """Return whether a run computes its advantages only from its rewards, as GRPO does."""
    algorithm = config["algorithm"]
    corrected = algorithm.get("rollout_correction") or {}
    plain = not algorithm.get("use_kl_in_reward") and not any(
        corrected.get(key) for key in ("rollout_is", "rollout_rs", "rollout_token_veto_threshold")
    )
    return algorithm["adv_estimator"] == "grpo" and plain


def group_advantages(
    records: Sequence[TrajectoryRecord], groups: Sequence[Group], *, by_deviation: bool
) -> list[float]:
    """A_j of each trajectory; 0 if it does not train or has no token. by_deviation: divide by the group's deviation.

    Plain rollouts beside a teacher's cued ones are compared only with plain ones.
    """
    plain = plain_advantages(records, groups, by_deviation=by_deviation)
    pairs = zip(records, groups, strict=True)
    scores = grouped((group.uid, record.score) for record, group in pairs if group.counts)
    advantages = []
    for place, (record, group) in enumerate(zip(records, groups, strict=True)):
        trains = group.trains and record.tokens
        own = relative(record.score, scores[group.uid], by_deviation=by_deviation) if trains else 0.0
        advantages.append(plain.get(place, own) if trains else 0.0)
    return advantages


def agrees(written: Any, found: float, equal_rewards: bool) -> bool:
    """Return whether a logged advantage, which verl computes in float32, equals this one."""
    number = isinstance(written, int | float) and not isinstance(written, bool)
    return number and math.isclose(written, found, rel_tol=1e-4, abs_tol=_ROUNDING if equal_rewards else 1e-5)
