"""The interface as a teacher: what a rollout passes with cues, it teaches under the plain prompt.

A passing rollout with cues is replayed without them, and trained in that form if it passes there too
(`seal/rollout/lesson.py`). This module decides, without an engine: which rollouts of a prompt see cues, which cues
answer the failures of its plain rollouts, what each cue gives, and when a cue retires.
"""

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from seal.method.interface.cues import EVERYWHERE, Omega, catalogue
from seal.method.labels import SYNONYMS

_ROUNDING = 1e-9
"""Keeps a multiple of a share that is a whole number from being rounded below it."""
_GONE = 0.05
"""A cue retires when its lift and one standard error stay below this, in units of the reward."""


def sees_omega(sample: int, share: float) -> bool:
    """Return whether the rollout with this number belongs to the share of its prompt's rollouts that see Omega."""
    return whole_part(share, sample + 1) > whole_part(share, sample)


def whole_part(share: float, rollouts: int) -> int:
    """Return the number of a prompt's first rollouts that belong to a share of them, rounded down."""
    return int(rollouts * share + _ROUNDING)


def is_control(sample: int, share: float, rollouts: int) -> bool:
    """Return whether a retry stays plain, to measure the lift of the others: the last one, if there are several."""
    return whole_part(share, rollouts) > 1 and sample == max(n for n in range(rollouts) if sees_omega(n, share))


def answering(omega: Omega, category: str, labels: Collection[str]) -> Omega:
    """Omega for the tasks of a category, without the cues of other failures than these; the version stays."""
    named = {SYNONYMS.get(label, label) for label in labels}
    return Omega.of(
        {EVERYWHERE: (name for name in omega.for_category(category) if catalogue()[name].label in named)}, omega.version
    )


def has_gradient(cues: Collection[str], taught: bool, passed: bool, imitates: bool) -> bool:
    """Return whether a rollout of a prompt with a teacher is trained on.

    A plain one is, as ever, and one that imitates (of the share, with `teacher=plain`) only if it passed. One with cues
    is only as its lesson, taught under the plain prompt. The rest counts in its group's baseline, without a gradient.
    """
    return taught if cues else passed or not imitates


class Rollout(NamedTuple):
    """The facts about one rollout of a prompt that a cue's figures need."""

    cues: tuple[str, ...]
    """The cues that it saw; () for a plain one."""
    failures: frozenset[str]
    """A prompt is evidence about a cue if the cue's label is among these in one of its rollouts."""
    score: float
    taught: bool
    """True if it is trained under the plain prompt."""
    transfer: float | None
    """log pi(y | plain prompt) - log pi(y | with cues) of a taught one, in nats; 0 once its cues are not needed."""
    comparable: bool
    """True if this plain rollout is comparable with cued ones; false if its failure is the reason for their cues."""


@dataclass(frozen=True)
class Lessons:
    """The lifts of cues in the last `window` steps, and the retired cues; immutable.

    steps: by step, the paired lift of each cue in each prompt that is evidence about it: mean reward of the rollouts
    that saw the cue minus that of comparable plain ones, where a rollout of either kind failed as the cue's label says.
    Where cues change nothing the two kinds are alike, so that the choice of prompts does not favour one of them. Cues
    are named "environment/cue".
    """

    window: int
    steps: tuple[tuple[int, Mapping[str, tuple[float, ...]]], ...] = ()
    retired: frozenset[str] = field(default_factory=frozenset)

    def after(self, step: int, prompts: Iterable[tuple[str, Sequence[Rollout]]], min_prompts: int) -> Self:
        """The lessons with the prompts of a step, (environment, rollouts); a cue without lift retires for good.

        min_prompts: how many prompts must say something of a cue in the window before it can retire.
        """
        lifts = {name: tuple(found) for name, found in _by_cue(prompts).items()}
        steps = (*((at, found) for at, found in self.steps if step - self.window < at != step), (step, lifts))
        recent: dict[str, list[float]] = {}
        for _, found in steps:
            for name, values in found.items():
                recent.setdefault(name, []).extend(values)
        gone = {name for name, values in recent.items() if len(values) >= max(2, min_prompts) and _is_gone(values)}
        return type(self)(self.window, steps, self.retired | gone)

    def to_json(self) -> dict[str, Any]:
        """JSON values, for the checkpoint."""
        return {"steps": [[at, dict(found)] for at, found in self.steps], "retired": sorted(self.retired)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], window: int) -> Self:
        """The inverse of :meth:`to_json`."""
        steps = ((at, {name: tuple(values) for name, values in found.items()}) for at, found in data["steps"])
        return cls(window, tuple(steps), frozenset(data["retired"]))


def figures(prompts: Sequence[tuple[str, Sequence[Rollout]]]) -> dict[str, dict[str, float]]:
    """Return the figures of each cue in a step, by "environment/cue".

    shown, passed, taught: rollouts. prompts, lift: see `Lessons`. transfer: the mean over taught rollouts
    (`Rollout.transfer`), absent without one.
    """
    seen: dict[str, list[Rollout]] = {}
    for environment, rollouts in prompts:
        for rollout in rollouts:
            for cue in rollout.cues:
                seen.setdefault(f"{environment}/{cue}", []).append(rollout)
    found, lifts = {}, _by_cue(prompts)
    for name, told in sorted(seen.items()):
        lift, transfers = lifts.get(name), [each.transfer for each in told if each.transfer is not None]
        passed, taught = sum(each.score >= 1 for each in told), sum(each.taught for each in told)
        found[name] = {"shown": len(told), "passed": passed, "taught": taught, "prompts": len(lift or ())}
        found[name] |= {"lift": statistics.fmean(lift)} if lift else {}
        found[name] |= {"transfer": statistics.fmean(transfers)} if transfers else {}
    return found


def _by_cue(prompts: Iterable[tuple[str, Sequence[Rollout]]]) -> dict[str, list[float]]:
    """The paired lifts of each "environment/cue", by prompt."""
    lifts: dict[str, list[float]] = {}
    for environment, rollouts in prompts:
        for cue, lift in _lifts(rollouts).items():
            lifts.setdefault(f"{environment}/{cue}", []).append(lift)
    return lifts


def _lifts(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """The paired lift of each cue that this prompt says something of."""
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


def _is_gone(lifts: Sequence[float]) -> bool:
    return statistics.fmean(lifts) + statistics.stdev(lifts) / math.sqrt(len(lifts)) < _GONE
