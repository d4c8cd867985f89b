"""Lessons of synthesised tasks."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from seal.policy.dialogue import Transcript, parsed
from seal.policy.lessons import LessonSettings, lesson
from seal.synthesis.grammar import Grammar
from seal.synthesis.make import synthesise
from seal.synthesis.sampler import SamplerSettings


@dataclass(frozen=True)
class SyntheticSettings:
    """Which tasks of the level `train` are made.

    count: tasks. direct_share: share in which the assistant tries nothing that fails. turns: weights of the number of
    requests.
    """

    count: int = 16_000
    direct_share: float = 0.4
    turns: tuple[tuple[int, float], ...] = field(default=((1, 0.35), (2, 0.4), (3, 0.25)))


def synthetic_lessons(
    settings: SyntheticSettings, how: LessonSettings, seed: int, on_task: Callable[[], None] = lambda: None
) -> list[Transcript]:
    """A lesson of every task that has one, deterministic from the seed; on_task is called after each task."""
    sampler = SamplerSettings(turns=dict(settings.turns))
    found = []
    for number, made in enumerate(synthesise(Grammar(), settings.count, seed, "train", sampler)):
        rng = random.Random(f"lesson/{seed}/{number}")
        direct = rng.random() < settings.direct_share
        transcript = lesson(made.task, parsed(made.reference if direct else made.demonstration), how, rng)
        if transcript is not None:
            found.append(transcript)
        on_task()
    return found
