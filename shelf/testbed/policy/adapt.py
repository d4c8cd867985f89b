"""A start policy for an environment: a small policy continues to learn from the references of its training tasks.

It stops once it would play half of these references at temperature 1, because reinforcement learning
needs both rollouts that pass and rollouts that fail. Held-out tasks are not touched.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from env_service.environments.base import Environment
from seal.method.interface.cues import EVERYWHERE, Omega, catalogue
from shelf.authoring.runs import dialogue, play, reference_run
from shelf.suites.folder import written_whole
from shelf.suites.serving import require_model
from shelf.testbed.policy.chat import ChatSettings, Encoded, Taught, encode, learn, plays
from shelf.testbed.policy.dialogue import PROMPT_MODE

PROBED, EVERY = 12, 4
"""The number of references used to judge the policy, and of lessons between two judgements."""
_ACTIVE = (0.15, 0.3, 0.6, 1.0)
"""Shares of active cues: in a run, all cues are active at first, later those for the labels that remain."""


@dataclass(frozen=True)
class AdaptSettings:
    """Settings of the adaptation.

    passes: the mean probability of a training reference at which learning stops. lessons: the most lessons.
    cued: dialogues per task with random cues, in addition to the plain one.
    """

    passes: float = 0.5
    lessons: int = 1_000
    cued: int = 2
    seed: int = 0


class Adapted(NamedTuple):
    """The result of the adaptation: training tasks, lessons, and the mean probability of a training reference."""

    tasks: int
    lessons: int
    passes: float


def adapt(
    environment: Environment, source: Path, out: Path, settings: AdaptSettings, on_step: Callable[[Taught, float], None]
) -> Adapted:
    """Write the policy of the folder `source`, adapted to the environment, to `out`, which must be empty or missing.

    on_step: called with each step and the newest probability. ValueError if the environment cannot be played in
    the policy's prompt mode, a reference does not pass, or no dialogue fits the policy's context.
    """
    with written_whole(out) as draft:
        if PROMPT_MODE not in environment.formats:
            raise ValueError(f"{environment.name} has no format {PROMPT_MODE}, which the small policy speaks.")
        model = AutoModelForCausalLM.from_pretrained(require_model(source), dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(source)
        rng, groups, most = random.Random(settings.seed), [], model.config.max_position_embeddings
        for task in environment.task_ids("train"):
            omegas = [None, *(Omega.of({EVERYWHERE: sorted(_drawn_cues(rng))}) for _ in range(settings.cued))]
            group = [encode(tokenizer, _lesson(environment, task, omega)) for omega in omegas]
            groups.append([each for each in group if len(each.ids) <= most])
        groups = list(filter(None, groups))
        if not groups:
            raise ValueError(f"No training task of {environment.name} fits {most} tokens.")
        probed = [group[0] for group in rng.sample(groups, min(PROBED, len(groups)))]
        result = Adapted(len(groups), 0, plays(model, probed).sampled)

        def judged(step: Taught) -> bool:
            nonlocal result
            passes = result.passes if (step.number + 1) % EVERY else plays(model, probed).sampled
            result = Adapted(len(groups), step.number + 1, passes)
            on_step(step, passes)
            return passes >= settings.passes

        if result.passes < settings.passes:
            how = ChatSettings(settings.lessons, minutes=math.inf)  # only the lessons are limited
            learn(model, islice(_drawn(groups, rng), settings.lessons), how, judged)
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        return result


def _drawn(groups: Sequence[Sequence[Encoded]], rng: random.Random) -> Iterator[Encoded]:
    """Endless lessons; each round takes one dialogue per group."""
    while True:
        yield from (rng.choice(group) for group in rng.sample(groups, len(groups)))


def _drawn_cues(rng: random.Random) -> set[str]:
    """The names of the cues that are active in a lesson."""
    share = rng.choice(_ACTIVE)
    return {cue.name for cue in catalogue().values() if cue.taxonomy in (None, "paper") and rng.random() < share}


def _lesson(environment: Environment, task: str, omega: Omega | None) -> list[dict[str, str]]:
    run = reference_run(environment, task, PROMPT_MODE)
    shown = {} if omega is None else {"split": "train", "omega": omega.to_json()}
    answers = play(environment, replace(run, params={**run.params, **shown}))
    if not answers[-1]["valid"]:
        raise ValueError(f"The reference of {task} does not pass: seal env check {environment.name} says why.")
    return dialogue(run.messages, answers)
