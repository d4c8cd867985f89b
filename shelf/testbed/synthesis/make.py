"""Makes verified tasks: sample a path, let a writer put it into words, keep it if it is sound."""

import random
from collections.abc import Iterator

from env_service.environments.bfcl.task_file import MadeTask, Provenance
from seal.records.benchmark import Level
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.sampler import SamplerSettings, sample_path
from shelf.testbed.synthesis.stage import RejectedDraw
from shelf.testbed.synthesis.verify import problem_of

_MOST_DRAWS = 10_000


def synthesise(
    writer: Grammar, count: int, seed: int, level: Level = "train", settings: SamplerSettings | None = None
) -> Iterator[MadeTask]:
    """`count` sound tasks with different messages, deterministic from the seed; ValueError if no task is allowed."""
    settings = settings or SamplerSettings()
    seen: set[tuple[str | None, ...]] = set()
    for number in range(count):
        rng = random.Random(f"{seed}/{level}/{number}")
        drawn = (_draw(rng, writer, level, settings, seed, number) for _ in range(_MOST_DRAWS))
        task = next((task for task in drawn if task is not None and task.users not in seen), None)
        if task is None:
            raise ValueError(f"None of {_MOST_DRAWS} draws gave a new task: widen the settings.")
        seen.add(task.users)
        yield task


def _draw(
    rng: random.Random, writer: Grammar, level: Level, settings: SamplerSettings, seed: int, number: int
) -> MadeTask | None:
    """The task of one draw; None if it is not sound."""
    try:
        path = sample_path(rng, level, settings)
    except RejectedDraw:
        return None
    task = MadeTask(
        category=path.category,
        level=level,
        kinds=tuple(sorted(path.kinds)),
        classes=path.classes,
        config=dict(path.config),
        users=writer.write(path, level, rng),
        reference=tuple(tuple(str(call) for call in calls if call.succeeded) for calls in path.calls),
        withheld=dict(path.withheld),
        hidden=path.hidden,
        demonstration=tuple(tuple(map(str, calls)) for calls in path.calls),
        provenance=Provenance(writer=writer.name, seed=seed, number=number),
    ).named()
    return task if problem_of(task.task) is None else None
