"""Evolve: Omega_{t+1} from Omega_t and C_t (paper, sections 3.2 and 3.3, Algorithm 1).

A label is a weakness while its recent prevalence is high and its recent mean reward
low; the cues of the worst weaknesses are on. Both are figures of the profile's
window: prevalence is the label's share of the labelled turns, the mean reward is
the mean terminal reward of the trajectories over the turns that carry the label.
Thresholds to leave are laxer than those to enter, and a newcomer must be clearly worse
than a weakness whose place it takes, so that cues do not flicker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from seal.diagnosis.categories import environment_of
from seal.diagnosis.profile import Cell, Profile, Tally
from seal.interface.cues import EVERYWHERE, Cue, Omega, catalogue
from seal.labels import SYNONYMS
from seal.settings.interface import EvolveSettings


def permanent_cues(settings: EvolveSettings) -> frozenset[str]:
    """Cues that are on whatever is seen: `always`, and every cue in use of a kind that is not adaptive."""
    return frozenset(settings.always) | {cue.name for cue in cues_in_use(settings) if cue.kind not in settings.adaptive}


def adaptive_cues(settings: EvolveSettings) -> tuple[Cue, ...]:
    """Cues that C_t turns on and off."""
    return tuple(cue for cue in cues_in_use(settings) if cue.kind in settings.adaptive)


def cues_in_use(settings: EvolveSettings) -> Iterator[Cue]:
    """Every cue that the settings do not leave out."""
    return (cue for cue in catalogue().values() if cue.kind in settings.kinds and cue.name not in settings.without)


def foreign_cues(settings: EvolveSettings, taxonomy: str) -> tuple[str, ...]:
    """Cues of other taxonomies, which a run leaves out; ValueError when `initial` or `always` name one."""
    foreign = tuple(cue.name for cue in catalogue().values() if cue.taxonomy not in (None, taxonomy))
    if asked := sorted({*settings.initial, *settings.always} & set(foreign)):
        raise ValueError(f"initial and always cannot name {asked[0]!r}: the {taxonomy} taxonomy lacks its label")
    return foreign


def initial_omega(settings: EvolveSettings) -> Omega:
    """Omega_0: the initial and the permanent cues, for every category."""
    return Omega.of((*settings.initial, *permanent_cues(settings)))


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
    scopes = _scopes(tally, settings)
    active = omega.by_scope()
    events: list[Event] = []
    for scope in scopes:
        figures = _figures(tally, scope, settings)
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


def _scopes(tally: Tally, settings: EvolveSettings) -> tuple[str, ...]:
    """What is judged by its own figures: each category, each of several environments, or everything together."""
    if settings.per_category:
        return tuple(tally.categories())
    environments = tuple(dict.fromkeys(map(environment_of, tally.categories())))
    return environments if settings.per_environment and len(environments) > 1 else (EVERYWHERE,)


def _figures(tally: Tally, scope: str, settings: EvolveSettings) -> dict[str, dict[str, float]]:
    """What decides in a scope, for each label that has a cue."""
    categories: tuple[str | None, ...] = (None,)
    if scope != EVERYWHERE:
        by_environment = tuple(each for each in tally.categories() if environment_of(each) == scope)
        categories = (scope,) if settings.per_category else by_environment
    turns, seen, figures = sum(map(tally.turns, categories)), {}, {}
    for label, cell in (each for category in categories for each in tally.labels(category).items()):
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
    on = {catalogue()[name].label for name in before - permanent_cues(settings)}
    weak = [
        label
        for label in {cue.label for cue in adaptive_cues(settings)}
        if _weak(figures[label], label in on, settings)
    ]
    weak.sort(key=lambda label: (-figures[label]["score"], label))
    chosen = [label for label in weak if label in on][: settings.max_labels]
    for label in (label for label in weak if label not in on):
        if len(chosen) < settings.max_labels:
            chosen.append(label)
        elif chosen and _clearly_worse(figures[label], figures[chosen[-1]], settings):
            chosen[-1] = label
        chosen.sort(key=lambda label: (-figures[label]["score"], label))
    return permanent_cues(settings) | {cue.name for cue in adaptive_cues(settings) if cue.label in chosen}


def _clearly_worse(new: Mapping[str, float], old: Mapping[str, float], settings: EvolveSettings) -> bool:
    """Whether the newcomer's score exceeds the other's by more than the counts could do by chance."""
    error = math.sqrt(1 / new["count"] + 1 / old["count"])
    return new["score"] > old["score"] * settings.stickiness * math.exp(settings.margin * error)


def _weak(figures: Mapping[str, float], on: bool, settings: EvolveSettings) -> bool:
    if on:
        return figures["prevalence"] >= settings.off_prevalence and figures["mean_reward"] < settings.off_mean_reward
    return (
        figures["prevalence"] >= settings.prevalence
        and figures["mean_reward"] < settings.mean_reward
        and figures["count"] >= settings.min_count
    )
