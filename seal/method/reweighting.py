"""Diagnosis-guided advantage reweighting (paper, section 3.4).

    p_j(z) = (1/T_j) sum_i 1[z_i = z]
    w_j    = clip(sum_z p_j(z) rho(z), w_min, w_max)
    A~_j   = w_j A_j

Pure; the trainer multiplies. Weights are positive, so no advantage changes its sign, and the reward is never touched.
"""

from collections.abc import Mapping, Sequence

from seal.method import labels as vocabulary
from seal.method.diagnosis.extension import Extension
from seal.method.diagnosis.rules import PAPER
from seal.method.labels import EXCLUDED, PASS
from seal.method.profile import Cell, Profile
from seal.settings.reweighting import ReweightSettings


def initial_rho(settings: ReweightSettings, extension: Extension = PAPER) -> dict[str, float]:
    """rho_0: each label's utility, the recipe's if it sets one; ValueError if it names another taxonomy's label."""
    rho = {name: vocabulary.get(name).utility for name in sorted(extension.counted)}
    for label, utility in settings.rho.items():
        if label not in rho:
            raise ValueError(f"the {extension.name} taxonomy has no {label}; it has {', '.join(rho)}")
        rho[label] = float(utility)
    return rho


def update_rho(
    rho: Mapping[str, float], profile: Profile, settings: ReweightSettings, extension: Extension = PAPER
) -> dict[str, float]:
    """rho_t from rho_{t-1} and C_t.

        target_z = clip(rho(z) (1 + alpha s_z (1 - m_z) min(1, n_z / confidence)), w_min, w_max)
        rho_t(z) = (1 - beta) rho_{t-1}(z) + beta target_z

    n, s, m: count, share and mean reward of the label in the window. `pass` keeps its utility; all do if not dynamic.
    """
    if not settings.dynamic:
        return dict(rho)
    base = initial_rho(settings, extension)
    seen, updated = profile.recent().labels(), dict(base)
    turns = max(1, sum(cell.count for cell in seen.values()))
    for label in base.keys() - {PASS}:
        cell = seen.get(label, Cell())
        pressure = cell.count / turns * (1 - cell.mean) * min(1.0, cell.count / settings.confidence)
        target = _clip(base[label] * (1 + settings.alpha * pressure), settings)
        updated[label] = (1 - settings.beta) * rho.get(label, base[label]) + settings.beta * target
    return updated


def weight(
    labels: Sequence[str], rho: Mapping[str, float], settings: ReweightSettings, extension: Extension = PAPER
) -> float:
    """w_j of one trajectory, from its labels by turn; 1 if none counts. ValueError for a label without a utility."""
    counted = [label for label in labels if label not in EXCLUDED]
    if not counted:
        return 1.0
    if unknown := [label for label in counted if label not in rho]:
        raise ValueError(f"label {unknown[0]!r} has no utility: declare it here or add it to seal.reweighting.rho")
    mean = sum(rho[label] for label in counted) / len(counted)
    return _clip(extension.weigh(counted, rho) if extension.weigh else mean, settings)


def _clip(value: float, settings: ReweightSettings) -> float:
    return min(max(value, settings.w_min), settings.w_max)
