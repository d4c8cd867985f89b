"""Diagnosis-guided advantage reweighting (paper, section 3.4).

    p_j(z) = (1/T_j) sum_i 1[z_i = z]
    w_j    = clip(sum_z p_j(z) rho(z), w_min, w_max)
    A~_j   = w_j A_j

Pure: labels and settings in, weights out; the trainer multiplies. Weights are
positive, so no advantage changes its sign, and the reward is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seal import labels as vocabulary
from seal.diagnosis.config import read_settings
from seal.diagnosis.profile import Profile
from seal.diagnosis.sources import taxonomy_labels
from seal.labels import EXCLUDED, PASS

RENORMALISE = ("none", "all", "nonzero")


@dataclass(frozen=True)
class Budget:
    """A limit on how far weights move a batch; the defaults change nothing.

    The public release's options: strength in [0, 1] softens, w -> 1 + strength (w - 1);
    low and high clamp the result; renormalise divides the weights of labelled
    trajectories by their mean and clips once more.
    """

    strength: float = 1.0
    low: float = 0.0
    high: float = float("inf")
    renormalise: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1:
            raise ValueError(f"reweighting.budget: strength must be between 0 and 1, got {self.strength}")
        if not 0 <= self.low <= 1 <= self.high:
            raise ValueError("reweighting.budget: needs 0 <= low <= 1 <= high")


@dataclass(frozen=True)
class ReweightSettings:
    """How labels become weights; see ``docs/reweighting.md``.

    enabled: false gives weight 1 to all. rho: utilities that differ from the declared
    ones, by label. w_min, w_max: the clip. dynamic: let rho follow the profile with
    strength alpha, smoothing beta and full confidence at ``confidence`` sightings.
    apply_to: advantages of which sign are weighted (all, positive, negative).
    warmup_steps: weight 1 during the first so many steps (steps count from 1).
    renormalise: scale the weights of a batch to a mean of 1 over all trajectories
    (all) or over those whose advantage is not 0 (nonzero). sign_aware: good labels
    weigh only positive advantages, failure labels only negative ones. per_turn: the
    trainer uses :func:`turn_weights`.
    """

    enabled: bool = True
    rho: Mapping[str, float] = field(default_factory=dict)
    w_min: float = 0.5
    w_max: float = 2.0
    dynamic: bool = True
    alpha: float = 1.0
    beta: float = 0.25
    confidence: int = 32
    apply_to: str = "all"
    warmup_steps: int = 0
    renormalise: str = "none"
    budget: Budget = Budget()
    per_turn: bool = False
    sign_aware: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.w_min <= 1 <= self.w_max:
            raise ValueError("reweighting: needs 0 < w_min <= 1 <= w_max")
        if self.alpha < 0 or not 0 <= self.beta <= 1:
            raise ValueError("reweighting: needs alpha >= 0 and beta in [0, 1]")
        if self.confidence < 1 or self.warmup_steps < 0:
            raise ValueError("reweighting: confidence must be 1 or more and warmup_steps 0 or more")
        if self.apply_to not in ("all", "positive", "negative"):
            raise ValueError(f"reweighting: apply_to is all, positive or negative, got {self.apply_to!r}")
        if self.renormalise not in RENORMALISE:
            raise ValueError(f"reweighting: renormalise is {', '.join(RENORMALISE)}, got {self.renormalise!r}")
        if self.renormalise != "none" and self.budget.renormalise:
            raise ValueError("reweighting: set either renormalise or budget.renormalise, not both")
        for label, utility in self.rho.items():
            vocabulary.get(label)
            if label in EXCLUDED:
                raise ValueError(f"reweighting: {label} is never weighted; take it out of rho")
            if isinstance(utility, bool) or not isinstance(utility, int | float) or not 0 < utility < float("inf"):
                raise ValueError(f"reweighting: rho[{label!r}] must be a positive number, got {utility!r}")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ReweightSettings:
        """Settings from a recipe's section; ValueError names what is wrong."""
        return read_settings(cls, config, "reweighting")


def initial_rho(settings: ReweightSettings, taxonomy: str = "paper") -> dict[str, float]:
    """rho_0: the utility of every label of the taxonomy, the recipe's own where it gives one.

    ValueError when the recipe gives a utility to a label of another taxonomy.
    """
    rho = {name: vocabulary.get(name).utility for name in sorted(taxonomy_labels(taxonomy))}
    for label, utility in settings.rho.items():
        if label not in rho:
            raise ValueError(f"seal.reweighting.rho: the {taxonomy} taxonomy has no {label}; it has {', '.join(rho)}.")
        rho[label] = float(utility)
    return rho


def update_rho(
    rho: Mapping[str, float], profile: Profile, settings: ReweightSettings, taxonomy: str = "paper"
) -> dict[str, float]:
    """rho_t from rho_{t-1} and C_t.

        target_z = clip(rho(z) (1 + alpha s_z (1 - m_z) min(1, n_z / confidence)), w_min, w_max)
        rho_t(z) = (1 - beta) rho_{t-1}(z) + beta target_z

    n, s, m: count, share and mean reward of the label in the profile's window. `pass`
    keeps its utility. Unchanged when not dynamic.
    """
    if not settings.dynamic or not settings.enabled:
        return dict(rho)
    base = initial_rho(settings, taxonomy)
    tally = profile.recent()
    seen, shares = tally.labels(), tally.shares()
    updated = dict(base)
    for label in base:
        if label == PASS:
            continue
        pressure = 0.0
        if label in seen:
            cell = seen[label]
            pressure = shares[label] * (1 - cell.mean) * min(1.0, cell.count / settings.confidence)
        target = _clip(base[label] * (1 + settings.alpha * pressure), settings.w_min, settings.w_max)
        updated[label] = (1 - settings.beta) * rho.get(label, base[label]) + settings.beta * target
    return updated


def weight(
    labels: Sequence[str] | None,
    rho: Mapping[str, float],
    settings: ReweightSettings,
    step: int,
    advantage_sign: int = 0,
) -> float:
    """w_j of one trajectory, from its labels by turn.

    1 when reweighting is off or warming up and when no label counts. The sign of the
    advantage matters only to ``apply_to`` and ``sign_aware``, which do not weigh an
    advantage of zero. Raises ValueError for a label without a utility. Renormalising
    needs the batch: :func:`weights`.
    """
    counted = [label for label in labels or () if label not in EXCLUDED]
    if not counted or not _applies(settings, step, advantage_sign):
        return 1.0
    utilities = [_utility(label, rho, settings, advantage_sign) for label in counted]
    return _within_budget(sum(utilities) / len(utilities), settings)


def weights(
    batch_labels: Sequence[Sequence[str] | None],
    rho: Mapping[str, float],
    settings: ReweightSettings,
    step: int,
    advantage_signs: Sequence[int] | None = None,
) -> list[float]:
    """w of each trajectory of a batch, budgeted and renormalised. Pass no padding rows.

    When the budget renormalises, weights are divided by their mean over the
    trajectories that have labels (the others stay at 1) and clipped once more, so the
    mean is 1 as far as [w_min, w_max] allows. ``settings.renormalise`` divides all
    weights by their mean and clips nothing, so the mean is exactly 1.
    """
    signs = advantage_signs if advantage_signs is not None else [0] * len(batch_labels)
    rows = list(zip(batch_labels, signs, strict=True))
    found = [weight(labels, rho, settings, step, sign) for labels, sign in rows]
    if not settings.budget.renormalise:
        scale = _scale([(w, sign) for w, sign in zip(found, signs, strict=True)], settings)
        return [w * scale for w in found]
    moved = [
        index
        for index, (labels, sign) in enumerate(rows)
        if set(labels or ()) - EXCLUDED and _applies(settings, step, sign)
    ]
    if moved:
        mean = sum(found[index] for index in moved) / len(moved)
        for index in moved:
            found[index] = _clip(found[index] / mean, settings.w_min, settings.w_max)
    return found


def turn_weights(
    batch_labels: Sequence[Sequence[str] | None],
    rho: Mapping[str, float],
    settings: ReweightSettings,
    step: int,
    advantage_signs: Sequence[int],
) -> list[list[float]]:
    """One weight for the tokens of each labelled turn: clip(rho(z_i)), 1 for an excluded label.

    Beyond the paper: the turn that failed carries the weight, not its whole trajectory.
    ``settings.renormalise`` scales the mean over turns to 1.
    """
    rows = list(zip(batch_labels, advantage_signs, strict=True))
    found = [[weight((label,), rho, settings, step, sign) for label in labels or ()] for labels, sign in rows]
    scale = _scale([(w, sign) for row, (_, sign) in zip(found, rows, strict=True) for w in row], settings)
    return [[w * scale for w in row] for row in found]


def _scale(signed: Sequence[tuple[float, int]], settings: ReweightSettings) -> float:
    """The factor that makes the mean weight 1, over the (weight, sign of advantage) pairs that are meant."""
    meant = [w for w, sign in signed if settings.renormalise == "all" or sign != 0]
    return len(meant) / sum(meant) if meant and settings.renormalise != "none" else 1.0


def _applies(settings: ReweightSettings, step: int, sign: int) -> bool:
    if not settings.enabled or step <= settings.warmup_steps:
        return False
    if settings.sign_aware and sign == 0:
        return False
    wanted = {"all": (-1, 0, 1), "positive": (1,), "negative": (-1,)}[settings.apply_to]
    return (sign > 0) - (sign < 0) in wanted


def _utility(label: str, rho: Mapping[str, float], settings: ReweightSettings, sign: int) -> float:
    if label not in rho:
        raise ValueError(f"label {label!r} has no utility; declare it in this process or add it to reweighting.rho")
    if settings.sign_aware and vocabulary.get(label).success != (sign > 0):
        return 1.0
    return rho[label]


def _within_budget(w: float, settings: ReweightSettings) -> float:
    clipped = _clip(w, settings.w_min, settings.w_max)
    softened = 1 + settings.budget.strength * (clipped - 1)
    return _clip(softened, max(settings.budget.low, settings.w_min), min(settings.budget.high, settings.w_max))


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
