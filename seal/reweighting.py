"""Diagnosis-guided advantage reweighting (paper, section 3.4).

    p_j(z) = (1/T_j) sum_i 1[z_i = z]
    w_j    = clip(sum_z p_j(z) rho(z), w_min, w_max)
    A~_j   = w_j A_j

Pure: labels and settings in, weights out; the trainer multiplies. Weights are
positive, so no advantage changes its sign, and the reward is never touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seal import labels as vocabulary
from seal.diagnosis.profile import Profile
from seal.diagnosis.sources import taxonomy_labels
from seal.labels import EXCLUDED, PASS
from seal.settings.reweighting import ReweightSettings


def initial_rho(settings: ReweightSettings, taxonomy: str = "paper") -> dict[str, float]:
    """rho_0: the utility of every label of the taxonomy, the recipe's own where it gives one.

    ValueError when the recipe gives a utility to a label of another taxonomy.
    """
    rho = {name: vocabulary.get(name).utility for name in sorted(taxonomy_labels(taxonomy))}
    for label, utility in settings.rho.items():
        if label not in rho:
            raise ValueError(f"the {taxonomy} taxonomy has no {label}; it has {', '.join(rho)}")
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
    advantages: Sequence[float] | None = None,
) -> list[float]:
    """w of each trajectory of a batch, budgeted and renormalised. Pass no padding rows.

    advantages: A_j of each trajectory; None: all 0. When the budget renormalises,
    weights are divided by their mean over the trajectories that have labels (the
    others stay at 1) and clipped once more, so the mean is 1 as far as [w_min, w_max]
    allows. ``settings.renormalise`` scales the weights and clips nothing, so it holds
    exactly: ``all`` and ``nonzero`` divide them by their mean, ``signs`` those of
    positive and those of negative advantages by their mean weighted by |A|.
    """
    rows = list(zip(batch_labels, advantages or [0.0] * len(batch_labels), strict=True))
    found = [weight(labels, rho, settings, step, sign_of(advantage)) for labels, advantage in rows]
    if not settings.budget.renormalise:
        scale = _scales([(w, advantage) for w, (_, advantage) in zip(found, rows, strict=True)], settings)
        return [w * scale[sign_of(advantage)] for w, (_, advantage) in zip(found, rows, strict=True)]
    moved = [
        index
        for index, (labels, advantage) in enumerate(rows)
        if set(labels or ()) - EXCLUDED and _applies(settings, step, sign_of(advantage))
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
    advantages: Sequence[float],
) -> list[list[float]]:
    """One weight for the tokens of each labelled turn: clip(rho(z_i)), 1 for an excluded label.

    Beyond the paper: the turn that failed carries the weight, not its whole trajectory.
    ``settings.renormalise`` counts turns, each with the advantage of its trajectory.
    """
    rows = list(zip(batch_labels, advantages, strict=True))
    found = [[weight((label,), rho, settings, step, sign_of(a)) for label in labels or ()] for labels, a in rows]
    scale = _scales([(w, a) for row, (_, a) in zip(found, rows, strict=True) for w in row], settings)
    return [[w * scale[sign_of(a)] for w in row] for row, (_, a) in zip(found, rows, strict=True)]


def sign_of(advantage: float) -> int:
    """-1, 0 or 1."""
    return (advantage > 0) - (advantage < 0)


def _scales(pairs: Sequence[tuple[float, float]], settings: ReweightSettings) -> dict[int, float]:
    """The factors of ``settings.renormalise`` for (weight, advantage) pairs, by the sign of the advantage."""
    if settings.renormalise == "signs":
        return {0: 1.0} | {
            sign: _inverse_mean([(w, abs(a)) for w, a in pairs if sign_of(a) == sign]) for sign in (-1, 1)
        }
    meant = {"none": [], "all": pairs, "nonzero": [(w, a) for w, a in pairs if a != 0]}[settings.renormalise]
    return dict.fromkeys((-1, 0, 1), _inverse_mean([(w, 1.0) for w, _ in meant]))


def _inverse_mean(counted: Sequence[tuple[float, float]]) -> float:
    """1 / the mean of values with these shares; 1 where there is nothing to count."""
    total = sum(w * share for w, share in counted)
    return sum(share for _, share in counted) / total if total else 1.0


def _applies(settings: ReweightSettings, step: int, sign: int) -> bool:
    if not settings.enabled or step <= settings.warmup_steps:
        return False
    if settings.sign_aware and sign == 0:
        return False
    wanted = {"all": (-1, 0, 1), "positive": (1,), "negative": (-1,)}[settings.apply_to]
    return (sign > 0) - (sign < 0) in wanted


def _utility(label: str, rho: Mapping[str, float], settings: ReweightSettings, sign: int) -> float:
    if label not in rho:
        raise ValueError(
            f"label {label!r} has no utility; declare it in this process or add it to seal.reweighting.rho"
        )
    if settings.sign_aware and vocabulary.get(label).success != (sign > 0):
        return 1.0
    return rho[label]


def _within_budget(w: float, settings: ReweightSettings) -> float:
    clipped = _clip(w, settings.w_min, settings.w_max)
    softened = 1 + settings.budget.strength * (clipped - 1)
    return _clip(softened, max(settings.budget.low, settings.w_min), min(settings.budget.high, settings.w_max))


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)
