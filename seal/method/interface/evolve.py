"""Evolve: Omega_{t+1} from Omega_t and C_t (paper, sections 3.2, 3.3, Algorithm 1; docs/how-it-works.md: weakness)."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from seal.method.diagnosis.categories import environment_of
from seal.method.diagnosis.extension import Extension
from seal.method.diagnosis.rules import PAPER
from seal.method.interface.cues import EVERYWHERE, Cue, Omega, catalogue
from seal.method.labels import SYNONYMS, get
from seal.method.profile import Cell, Profile, Tally
from seal.settings.interface import EvolveSettings

_LEAVE_PREVALENCE = 0.7
"""A weakness ends below this fraction of the prevalence at which a label becomes one."""
_LEAVE_REWARD = 0.05
"""A weakness ends at this distance above the mean reward below which a label becomes one."""
_STICKINESS = 1.25
"""The factor by which a newcomer's score must exceed that of the weakness whose place it takes."""
_MARGIN = 2.0
"""Standard errors by which it must exceed that factor: more evidence is needed when sightings are few."""


def cues_in_use(settings: EvolveSettings, extension: Extension = PAPER, environment: str = "") -> tuple[Cue, ...]:
    """Every cue in use whose label the extension has; ValueError for a taken name, or none to leave out.

    environment: cues that are left out only in this environment are left out too.
    """
    for name in extension.cues:
        if (known := catalogue().get(name)) and known.taxonomy != extension.name:
            raise ValueError(f"the extension {extension.name!r} has a cue {name!r}, which exists: choose another name")
    for name in settings.left_out:
        if name.rpartition("/")[2] not in catalogue():
            raise ValueError(f"there is no cue {name!r} to leave out; the cues are {', '.join(catalogue())}")
    of_kind = (cue for cue in catalogue().values() if cue.kind in settings.kinds)
    fitting = (cue for cue in of_kind if cue.taxonomy in (None, extension.name))
    return tuple(cue for cue in fitting if not {cue.name, f"{environment}/{cue.name}"} & {*settings.left_out})


def permanent_cues(settings: EvolveSettings, extension: Extension = PAPER, environment: str = "") -> frozenset[str]:
    """Cues that are always on: every cue in use of a kind that is not adaptive."""
    used = cues_in_use(settings, extension, environment)
    return frozenset(cue.name for cue in used if cue.kind not in settings.adaptive)


def initial_omega(settings: EvolveSettings, extension: Extension = PAPER) -> Omega:
    """Omega_0: the permanent cues, for every category."""
    own = {name.partition("/")[0] for name in settings.left_out if "/" in name}
    return Omega.of(
        {EVERYWHERE: permanent_cues(settings, extension)}
        | {environment: permanent_cues(settings, extension, environment) for environment in own}
    )


@dataclass(frozen=True)
class Event:
    """One change of Omega: a cue turned on or off at a step, with the figures that caused it.

    category is "*", or the environment whose figures judge the cue. figures: prevalence, mean_reward, count,
    score (prevalence x (1 - mean reward)) of the cue's label, and the turns that prevalence is a share of.
    """

    step: int
    cue: str
    on: bool
    category: str
    figures: Mapping[str, float]


def evolve(
    omega: Omega,
    profile: Profile,
    settings: EvolveSettings,
    step: int,
    extension: Extension = PAPER,
) -> tuple[Omega, tuple[Event, ...]]:
    """Omega_{t+1} and its changes. Deterministic; the version grows by one when a cue changed.

    Each environment of a run with several is judged by its own figures and has its own cues. One with fewer than
    ``min_count`` turns in the window keeps its cues.
    """
    tally, active = profile.recent(), dict(omega.active)
    events: list[Event] = []
    for scope, categories in _scopes(tally, omega).items():
        environment = environment_of("".join(categories[:1])) if scope == EVERYWHERE else scope
        permanent = permanent_cues(settings, extension, environment)
        adaptive = [cue for cue in cues_in_use(settings, extension, environment) if cue.name not in permanent]
        figures = _figures(tally, categories, settings)
        before = frozenset(omega.for_category(f"{scope}/"))  # its bare name would be a category of the benchmark
        after = before
        if sum(cell.count for each in categories for cell in tally.labels(each).values()) >= settings.min_count:
            on = {catalogue()[name].label for name in before - permanent}
            chosen = _weaknesses(on, {cue.label for cue in adaptive}, figures, settings)
            after = permanent | {cue.name for cue in adaptive if cue.label in chosen}
        if after != before:
            active[scope] = tuple(after)
        for name, cue in catalogue().items():
            if (name in before) != (name in after):
                events.append(Event(step, name, name in after, scope, figures[cue.label]))
    if not events:
        return omega, ()
    return Omega.of(active, omega.version + 1), tuple(events)


def _scopes(tally: Tally, omega: Omega) -> dict[str, tuple[str, ...]]:
    """The categories of each environment in a run with several; else all of them for the scope "*"."""
    scopes: dict[str, tuple[str, ...]] = {}
    for category in (seen := sorted({*tally.by_category, *(category for category, _ in tally.by_label)})):
        scopes[environment_of(category)] = (*scopes.get(environment_of(category), ()), category)
    return scopes if len(scopes) > 1 or scopes.keys() & dict(omega.active).keys() else {EVERYWHERE: (*seen,)}


def _figures(tally: Tally, categories: Sequence[str], settings: EvolveSettings) -> dict[str, dict[str, float]]:
    """Return the figures that decide in a scope, for each label that has a cue."""
    turns, seen, figures = 0, {}, {}
    for label, cell in (each for category in categories for each in tally.labels(category).items()):
        turns += cell.count if settings.prevalence_of == "turns" or not get(label).success else 0
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


def _weaknesses(
    on: Collection[str], labels: Collection[str], figures: Mapping[str, Mapping[str, float]], settings: EvolveSettings
) -> list[str]:
    """The labels whose cues are on next, of those that have adaptive cues; on: those whose cues are on now."""

    def worst_first(label: str) -> tuple[float, str]:
        return -figures[label]["score"], label

    on = on if settings.hysteresis else ()
    weak = sorted((label for label in labels if _weak(figures[label], label in on, settings)), key=worst_first)
    chosen = [label for label in weak if label in on][: settings.max_labels]
    for label in (label for label in weak if label not in on):
        if len(chosen) < settings.max_labels:
            chosen.append(label)
        elif chosen and _clearly_worse(figures[label], figures[chosen[-1]]):
            chosen[-1] = label
        chosen.sort(key=worst_first)
    return chosen


def _clearly_worse(new: Mapping[str, float], old: Mapping[str, float]) -> bool:
    """Return whether the new label's score exceeds the old one's by more than chance explains, given the counts."""
    error = math.sqrt(1 / new["count"] + 1 / old["count"])
    return new["score"] > old["score"] * _STICKINESS * math.exp(_MARGIN * error)


def _weak(figures: Mapping[str, float], on: bool, settings: EvolveSettings) -> bool:
    if on:
        frequent = figures["prevalence"] >= settings.prevalence * _LEAVE_PREVALENCE
        return frequent and figures["mean_reward"] < settings.mean_reward + _LEAVE_REWARD
    frequent = figures["prevalence"] >= settings.prevalence and figures["count"] >= settings.min_count
    return frequent and figures["mean_reward"] < settings.mean_reward
