"""Makes verified tasks: sample a path, let a writer put it into words, keep it if it is sound."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from env_service.environments.bfcl.task_file import MadeTask, Provenance
from seal.diagnosis.categories import Level
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.path import CallPath
from shelf.testbed.synthesis.sampler import SamplerSettings, sample_path
from shelf.testbed.synthesis.stage import RejectedDraw
from shelf.testbed.synthesis.verify import problem_of

_MOST_DRAWS = 10_000


@dataclass
class Draws:
    """How many draws were made, and how many tasks were kept."""

    made: int = 0
    kept: int = 0


def synthesise(
    writer: Grammar,
    count: int,
    seed: int,
    level: Level = "train",
    settings: SamplerSettings | None = None,
    draws: Draws | None = None,
) -> Iterator[MadeTask]:
    """`count` sound tasks, no two with the same messages; the same arguments give the same tasks.

    draws: counts along. ValueError if the settings allow no task.
    """
    settings, draws = settings or SamplerSettings(), draws or Draws()
    seen: set[tuple[str | None, ...]] = set()
    for number in range(count):
        rng = random.Random(f"{seed}/{level}/{number}")
        for _ in range(_MOST_DRAWS):
            draws.made += 1
            task = _draw(rng, writer, level, settings, Provenance(writer=writer.name, seed=seed, number=number))
            if task is not None and task.users not in seen:
                break
        else:
            raise ValueError(f"None of {_MOST_DRAWS} draws gave a new task: widen the classes or the turns.")
        seen.add(task.users)
        draws.kept += 1
        yield task


def _draw(
    rng: random.Random, writer: Grammar, level: Level, settings: SamplerSettings, provenance: Provenance
) -> MadeTask | None:
    try:
        path = sample_path(rng, level, settings)
    except RejectedDraw:
        return None
    task = made_task(path, writer.write(path, level, rng), level, provenance)
    return task if problem_of(task.task) is None else None


def made_task(path: CallPath, users: tuple[str | None, ...], level: Level, provenance: Provenance) -> MadeTask:
    """The task of a path in these words, with the id of its content."""
    return MadeTask(
        category=path.category,
        level=level,
        kinds=tuple(sorted(path.kinds)),
        classes=path.classes,
        config=dict(path.config),
        users=users,
        reference=tuple(tuple(str(call) for call in calls if call.succeeded) for calls in path.calls),
        withheld=dict(path.withheld),
        hidden=path.hidden,
        demonstration=tuple(tuple(map(str, calls)) for calls in path.calls),
        provenance=provenance,
    ).named()
