"""Lessons of synthesised tasks."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from shelf.testbed.policy.dialogue import Transcript, parsed
from shelf.testbed.policy.lessons import LessonSettings, lesson, reading_lessons
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from shelf.testbed.synthesis.sampler import SamplerSettings


@dataclass(frozen=True)
class SyntheticSettings:
    """Which tasks of the level `train` are made.

    count: tasks. direct_share: share in which the assistant tries nothing that fails. turns: weights of the number of
    requests. reading_share: share of the tasks of which single calls under a schema cue are made, too.
    """

    count: int = 36_000
    direct_share: float = 0.4
    reading_share: float = 0.3
    turns: tuple[tuple[int, float], ...] = field(default=((1, 0.3), (2, 0.38), (3, 0.32)))


class Lessons(NamedTuple):
    """Whole dialogues, and single calls under a schema cue."""

    whole: list[Transcript]
    reading: list[Transcript]


def synthetic_lessons(
    settings: SyntheticSettings, how: LessonSettings, seed: int, on_task: Callable[[], None] = lambda: None
) -> Lessons:
    """The lessons of the tasks that have one, deterministic from the seed; on_task is called after each task."""
    sampler = SamplerSettings(turns=dict(settings.turns))
    lessons = Lessons([], [])
    for number, made in enumerate(synthesise(Grammar(), settings.count, seed, "train", sampler)):
        rng = random.Random(f"lesson/{seed}/{number}")
        direct = rng.random() < settings.direct_share
        transcript = lesson(made.task, parsed(made.reference if direct else made.demonstration), how, rng)
        if transcript is not None:
            lessons.whole.append(transcript)
        if rng.random() < settings.reading_share:
            lessons.reading.extend(reading_lessons(made.task, parsed(made.reference), rng))
        on_task()
    return lessons
