"""Evolve: Omega_{t+1} from Omega_t and C_t (paper, sections 3.2 and 3.3, Algorithm 1).

A label is a weakness while its recent prevalence is high and its recent mean reward
low; the cues of the worst weaknesses are on. Both are figures of the profile's
window: prevalence is the label's share of the labelled turns, the mean reward is
the mean terminal reward of the trajectories over the turns that carry the label.
Thresholds to leave are laxer than those to enter, so that a cue does not flicker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from seal.diagnosis.profile import Cell, Profile, Tally
from seal.interface.cues import EVERYWHERE, Omega, catalogue
from seal.labels import SYNONYMS
from seal.settings.interface import EvolveSettings


def initial_omega(settings: EvolveSettings) -> Omega:
    """Omega_0: the initial and the permanent cues, for every category."""
    return Omega.of((*settings.initial, *settings.always))


def require_known_cues(settings: EvolveSettings) -> None:
    """ValueError when the settings name a cue that the catalogue does not have."""
    for key in ("without", "initial", "always"):
        for name in getattr(settings, key):
            if name not in catalogue():
                raise ValueError(f"{key} names the unknown cue {name!r}; known cues: {', '.join(catalogue())}")


@dataclass(frozen=True)
class Event:
    """One change of Omega: a cue turned on or off at a step, with the figures that caused it.

    category is "*" when the cue is judged over all categories. figures: prevalence,
    mean_reward, count, score (prevalence x (1 - mean reward)) of the cue's label and
    the number of turns in the window.
    """

    step: int
    cue: str
    on: bool
    category: str
    figures: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return {**asdict(self), "figures": dict(self.figures)}


def evolve(omega: Omega, profile: Profile, settings: EvolveSettings, step: int) -> tuple[Omega, tuple[Event, ...]]:
    """Omega_{t+1} and its changes. Deterministic; the version grows by one when a cue changed.

    A scope with fewer than ``min_count`` labelled turns in the window keeps its cues.
    """
    if not settings.enabled:
        return omega, ()
    tally = profile.recent()
    scopes = tuple(tally.categories()) if settings.per_category else (EVERYWHERE,)
    active = omega.by_scope()
    events: list[Event] = []
    for scope in scopes:
        figures = _figures(tally, None if scope == EVERYWHERE else scope)
        before = frozenset(omega.for_category(scope))
        after = _cues(before, figures, settings)
        if after != before:
            active[scope] = tuple(after)
        for name, cue in catalogue().items():
            if (name in before) != (name in after):
                events.append(Event(step, name, name in after, scope, figures[cue.label]))
    if not events:
        return omega, ()
    return Omega.of(active, omega.version + 1), tuple(events)


def _figures(tally: Tally, category: str | None) -> dict[str, dict[str, float]]:
    """What decides, for each label that has a cue."""
    turns, seen, figures = tally.turns(category), {}, {}
    for label, cell in tally.labels(category).items():
        cued = SYNONYMS.get(label, label)
        seen[cued] = seen.get(cued, Cell()) + cell
    for label in {cue.label for cue in catalogue().values()}:
        cell = seen.get(label, Cell())
        share = cell.count / turns if turns else 0.0
        figures[label] = {
            "prevalence": share,
            "mean_reward": cell.mean,
            "count": cell.count,
            "score": share * (1 - cell.mean),
            "turns": turns,
        }
    return figures


def _cues(
    before: frozenset[str], figures: Mapping[str, Mapping[str, float]], settings: EvolveSettings
) -> frozenset[str]:
    if max(seen["turns"] for seen in figures.values()) < settings.min_count:
        return before
    usable = [c for c in catalogue().values() if c.kind in settings.kinds and c.name not in settings.without]
    on = {catalogue()[name].label for name in before if name not in settings.always}
    scores = {
        label: figures[label]["score"] * (settings.stickiness if label in on else 1.0)
        for label in {cue.label for cue in usable}
        if _weak(figures[label], label in on, settings)
    }
    chosen = sorted(scores, key=lambda label: (-scores[label], label))[: settings.max_labels]
    return frozenset({cue.name for cue in usable if cue.label in chosen} | set(settings.always))


def _weak(figures: Mapping[str, float], on: bool, settings: EvolveSettings) -> bool:
    if on:
        return figures["prevalence"] >= settings.off_prevalence and figures["mean_reward"] < settings.off_mean_reward
    return (
        figures["prevalence"] >= settings.prevalence
        and figures["mean_reward"] < settings.mean_reward
        and figures["count"] >= settings.min_count
    )
