"""The interface as a teacher (docs/how-it-works.md#the-teacher): a success with cues teaches under the plain prompt.

This module decides, without an engine, which rollouts of a prompt see which cues, which are trained, and what each cue
gives. `seal/rollout/lesson.py` replays a success.
"""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

from seal.method.interface.cues import Omega, catalogue
from seal.method.labels import SYNONYMS
from seal.settings import SealSettings
from seal.settings.interface import Entries
from seal.system.grouping import grouped

_ROUNDING = 1e-9
"""Keeps a multiple of a share that is a whole number from being rounded below it."""

Role = Literal["plain", "cued", "retry", "control"]
"""The role of a rollout in its prompt: it sees no cue; it sees Omega; it sees the documents that answer the broken
calls of the plain ones; or it could see these and stays plain, to measure their lift."""


def sees_omega(sample: int, share: float) -> bool:
    """Return whether the rollout with this number belongs to the share of its prompt's rollouts that see Omega."""
    return whole_part(share, sample + 1) > whole_part(share, sample)


def whole_part(share: float, rollouts: int) -> int:
    """Return the number of a prompt's first rollouts that belong to a share of them, rounded down."""
    return int(rollouts * share + _ROUNDING)


@dataclass(frozen=True)
class Teacher:
    """The rules of `seal.interface.teacher=off`: a rollout is trained, if at all, under the prompt that it saw."""

    share: float
    teaches: ClassVar[bool] = False
    """True if a success with cues teaches the plain prompt."""

    def role(self, sample: int, rollouts: int) -> Role:
        """The role of a training rollout, by its number among those of its prompt."""
        return "cued" if sees_omega(sample, self.share) else "plain"

    def comparable(self, sample: int) -> bool:
        """Return whether a plain rollout is comparable with cued ones: its failure is not the reason for their cues."""
        return True

    def failures(self, signals: Collection[str], cues: Collection[str]) -> frozenset[str]:
        """The labels for which a rollout makes its prompt evidence about their cues."""
        return frozenset(signals)


class Share(Teacher):
    """The rules of `share`: the share of a prompt's rollouts sees Omega, and those of them that pass teach."""

    teaches = True


class Retry(Share):
    """The rules of `retry`: the share sees documents of tools if all of the others failed."""

    def role(self, sample: int, rollouts: int) -> Role:
        """As above; the last of several that may retry is the control."""
        if not sees_omega(sample, self.share):
            return "plain"
        last = max(number for number in range(rollouts) if sees_omega(number, self.share))
        return "control" if sample == last and whole_part(self.share, rollouts) > 1 else "retry"

    def comparable(self, sample: int) -> bool:
        return sees_omega(sample, self.share)

    def failures(self, signals: Collection[str], cues: Collection[str]) -> frozenset[str]:
        """The labels that the cues answer: they occurred before, in the plain rollouts."""
        return frozenset(catalogue()[cue].label for cue in cues)


TEACHERS: Mapping[str, type[Teacher]] = {"off": Teacher, "share": Share, "retry": Retry}


def teacher_of(settings: SealSettings) -> Teacher:
    """The teacher of a recipe; `off` without an interface."""
    name = settings.interface.teacher if settings.shows_omega else "off"
    return TEACHERS[name](settings.interface.share)


def omega_for(
    role: Role, omega: Omega, cues: Collection[str], entries: Entries = "own", broken: Collection[str] | None = None
) -> Omega | None:
    """The Omega that a role shows for a task; None for the plain prompt.

    cues: those of Omega that hold for the task (`Omega.for_category`). broken: the tools whose schema the calls of the
    plain rollouts broke; None if one of these passed.
    """
    if role == "retry":
        return _documents(omega, cues, entries, broken)
    return omega if role == "cued" and cues else None


def _documents(omega: Omega, cues: Collection[str], entries: Entries, broken: Collection[str] | None) -> Omega | None:
    """An Omega of the cues that show documents, for the tools that `entries` chooses; None without any."""
    told = Omega.of((name for name in cues if catalogue()[name].tells_documents), omega.version)
    if broken is None or not (broken or entries == "all") or not told.active:
        return None
    if entries == "all":
        return told
    return replace(told, tools=tuple(sorted(broken)), others=len(broken) if entries == "other" else 0)


class Trial(NamedTuple):
    """The facts about one rollout of a prompt that a cue's figures need."""

    cues: tuple[str, ...]
    """The cues that it saw; () for a plain one."""
    failures: frozenset[str]
    """A prompt is evidence about a cue if the cue's label is among these in one of its rollouts."""
    score: float
    taught: bool
    """True if it is trained under the plain prompt."""
    transfer: float | None
    """log pi(y | plain prompt) - log pi(y | with cues) of a taught one, in nats; 0 once it needs no cues."""
    comparable: bool
    """True if this plain rollout is comparable with cued ones; false if its failure is the reason for their cues."""


Prompts = Sequence[tuple[str, Sequence[Trial]]]
"""The prompts of a step: the environment of each, and its rollouts."""


def figures(prompts: Prompts) -> dict[str, dict[str, float]]:
    """Return the figures of each cue in a step, by "environment/cue".

    shown, passed, taught: counts of rollouts. prompts: the count that is evidence about the cue. lift: over these, the
    mean reward of the rollouts that saw the cue minus that of comparable plain ones. The rollouts of a prompt see the
    same cues, so this is the lift of all cues together. If cues change nothing, the two kinds are alike, so the choice
    of prompts favours neither. transfer: the mean over taught rollouts (`Trial.transfer`), absent without one.
    """
    seen = grouped((f"{env}/{cue}", each) for env, rollouts in prompts for each in rollouts for cue in each.cues)
    lifts = grouped((f"{env}/{cue}", lift) for env, rollouts in prompts for cue, lift in _lifts(rollouts).items())
    found = {}
    for name, told in sorted(seen.items()):
        paired, transfers = lifts.get(name, ()), [each.transfer for each in told if each.transfer is not None]
        passed, taught = sum(each.score >= 1 for each in told), sum(each.taught for each in told)
        found[name] = {"shown": len(told), "passed": passed, "taught": taught, "prompts": len(paired)}
        found[name] |= {"lift": statistics.fmean(paired)} if paired else {}
        found[name] |= {"transfer": statistics.fmean(transfers)} if transfers else {}
    return found


def _lifts(rollouts: Sequence[Trial]) -> dict[str, float]:
    """The paired lift of each cue about which this prompt is evidence."""
    plain = [each.score for each in rollouts if not each.cues and each.comparable]
    labels = {SYNONYMS.get(label, label) for each in rollouts for label in each.failures}
    if not plain:
        return {}
    lifts = {}
    for cue in dict.fromkeys(cue for each in rollouts for cue in each.cues):
        if catalogue()[cue].label in labels:
            seen = [each.score for each in rollouts if cue in each.cues]
            lifts[cue] = statistics.fmean(seen) - statistics.fmean(plain)
    return lifts
