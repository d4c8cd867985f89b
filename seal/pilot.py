"""Piloting: a few rollouts of a prompt first, the rest only where they may differ.

GRPO learns nothing from a group whose rollouts all have the same reward. A prompt
therefore gets `pilot.samples` rollouts first. If their rewards differ, or infrastructure
lost one and nobody knows, it goes on and gets the rest of its n; if they agree it goes
on with probability `pilot.keep`. What the others leave over goes to further prompts, so
that a step always plays prompts x n rollouts.

No bias in C_t (Horvitz and Thompson 1952). Let q be the probability with which a
prompt goes on, given its pilots: 1, or `keep`, and never 0. Its pilots count with weight 1,
and its further rollouts together with weight (n - samples) / q if it goes on and not at all
if it does not. Further rollouts do not depend on the pilots once the prompt and the policy
are given, so the prompt counts in expectation as samples + q (n - samples) / q = n rollouts
with its own label shares: as much as a prompt that is played in full. That holds for any
number of further rollouts, as long as it is fixed before they are played. How many prompts
a step pilots follows from the ones before and not from their own rollouts, so it adds no
bias to the sums either.

Pure: rewards in, rollouts to send out. Everything follows from the seed, the step and the
rewards.
"""

import random
from collections.abc import Sequence
from typing import Literal, NamedTuple

from seal.settings.sampling import PilotSettings

Verdict = Literal["differ", "agree", "undecided"]
"""What the pilots of a prompt say: their rewards differ, are all the same, or one was lost and the others agree."""


class Part(NamedTuple):
    """Rollouts of one prompt that are sent together.

    prompt: its number in the step, from 0. first: the number of the first of them among the
    prompt's rollouts. samples: how many. inclusion: for how many rollouts each counts in C_t.
    """

    prompt: int
    first: int
    samples: int
    inclusion: float = 1.0


class Decision(NamedTuple):
    """Whether a piloted prompt goes on, and with which probability it did."""

    prompt: int
    verdict: Verdict
    probability: float
    went_on: bool


def judge(scores: Sequence[float | None]) -> Verdict:
    """What pilots with these rewards say; None stands for a rollout that was lost or excluded."""
    if len(set(scores) - {None}) > 1:
        return "differ"
    return "undecided" if None in scores else "agree"


class PilotPlan:
    """The rollouts of one step: `start` gives the first ones to send, `go_on` the next ones until `pilots` is empty.

    prompts x samples: the step's rollouts, which are all sent, no more and no fewer. Each wave
    pilots as many prompts as could all go on with what is left, so every decision is carried
    out. After `settings.waves` waves, or when less than one group is left, the remainder goes to
    prompts that are played in full without pilots; of a remainder that is not a whole group,
    two rollouts or more are a smaller group, and a single one joins the last group that is sent.

    Raises ValueError unless 2 <= settings.samples <= samples - 2: the rest of a group must be a group.
    """

    def __init__(self, settings: PilotSettings, prompts: int, samples: int, seed: int, step: int):
        require_rest(settings, samples)
        self._pilot, self._keep, self._waves = settings.samples, settings.keep, settings.waves
        self._samples = samples
        self._left = prompts * samples
        self._place = f"pilot/{seed}/{step}"
        self.prompts = 0
        self.pilots: tuple[Part, ...] = ()
        self.decisions: list[Decision] = []

    def start(self) -> tuple[Part, ...]:
        """The pilots of the first wave."""
        return self._wave()

    def go_on(self, scores: Sequence[Sequence[float | None]]) -> tuple[Part, ...]:
        """What follows from the rewards of the pilots under way, in the order of `pilots`: what is to be sent next."""
        decided = [self._decide(part.prompt, found) for part, found in zip(self.pilots, scores, strict=True)]
        rest = self._samples - self._pilot
        further = [
            Part(decision.prompt, self._pilot, rest, 1 / decision.probability)
            for decision in decided
            if decision.went_on
        ]
        self.decisions += decided
        self._left -= rest * len(further)
        self.pilots = ()
        if self._waves and self._left >= self._samples:
            return (*further, *self._wave())
        return self._with_remainder(further)

    @property
    def figures(self) -> dict[str, int]:
        """How many prompts were piloted, went on, and were played without pilots."""
        went_on = sum(decision.went_on for decision in self.decisions)
        piloted = len(self.decisions)
        return {"piloted": piloted, "went_on": went_on, "in_full": self.prompts - piloted}

    def _wave(self) -> tuple[Part, ...]:
        self._waves -= 1
        self.pilots = self._new([self._pilot] * (self._left // self._samples))
        return self.pilots

    def _with_remainder(self, further: list[Part]) -> tuple[Part, ...]:
        whole, single = divmod(self._left, self._samples)
        sizes = [self._samples] * whole + ([single] if single > 1 else [])
        groups = [*further, *self._new(sizes)]
        if single == 1:
            # Someone is there: a wave of which nobody goes on leaves at least a rest, which is two rollouts or more.
            last = groups[-1]
            weight = last.inclusion if last.first == 0 else last.inclusion * last.samples / (last.samples + 1)
            groups[-1] = Part(last.prompt, last.first, last.samples + 1, weight)
            self._left -= 1
        return tuple(groups)

    def _new(self, sizes: Sequence[int]) -> tuple[Part, ...]:
        """Parts of prompts that nothing was sent of yet."""
        parts = tuple(Part(self.prompts + number, 0, size) for number, size in enumerate(sizes))
        self.prompts += len(parts)
        self._left -= sum(sizes)
        return parts

    def _decide(self, prompt: int, scores: Sequence[float | None]) -> Decision:
        verdict = judge(scores)
        probability = self._keep if verdict == "agree" else 1.0
        drawn = random.Random(f"{self._place}/{prompt}").random()
        return Decision(prompt, verdict, probability, drawn < probability)


def require_rest(settings: PilotSettings, samples: int) -> None:
    """ValueError if `samples` rollouts of a prompt leave no group beside its pilots."""
    if not 2 <= settings.samples <= samples - 2:
        raise ValueError(f"{settings.samples} pilots leave fewer than two of {samples} rollouts")


def most_prompts(settings: PilotSettings, prompts: int, samples: int) -> int:
    """The largest number of prompts that a step can need: if no prompt goes on."""
    left, needed = prompts * samples, 0
    for _ in range(settings.waves):
        piloted = left // samples
        left -= piloted * settings.samples
        needed += piloted
    whole, single = divmod(left, samples)
    return needed + whole + (single > 1)
