"""The tasks of the gate in labels.md: new tasks, and new tasks that each show 40 tools or more.

python -m benchmarks.entries COUNT SEED short.jsonl long.jsonl     # the long lists have the seed SEED + 1
"""

import random
import sys
from pathlib import Path

from env_service.environments.bfcl.catalog import CLASSES, documents
from env_service.environments.bfcl.task_file import MadeTask, write_task_file
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from shelf.testbed.synthesis.sampler import SamplerSettings
from shelf.testbed.synthesis.values import Values
from shelf.testbed.synthesis.verify import problem_of
from shelf.testbed.synthesis.world import configuration

FEWEST = 40
"""The least number of visible tools; the compact schema cue has room for the entries of about 20 (600 characters)."""


def lengthened(task: MadeTask, seed: int) -> MadeTask | None:
    """The task with all tools of its simulators and of others, chosen and placed by the seed; None if not sound."""
    rng = random.Random(f"{seed}/{task.id}")
    classes, config = list(task.classes), dict(task.config)
    for name in rng.sample(CLASSES, len(CLASSES)):
        if sum(len(documents(each)) for each in classes) >= FEWEST:
            break
        if name not in classes:
            classes.insert(rng.randint(0, len(classes)), name)
            config |= configuration([name], Values(rng, held_out=False))
    changes = {"classes": tuple(classes), "config": config, "hidden": (), "kinds": (), "demonstration": ()}
    made = task.model_copy(update=changes).named()
    return made if problem_of(made.task) is None else None


def tasks(count: int, seed: int) -> list[MadeTask]:
    """Tasks of one or two requests, about as long as those of the test bed; no policy selects any of them."""
    return list(synthesise(Grammar(), count, seed, "train", SamplerSettings(turns={1: 0.5, 2: 0.5})))


if __name__ == "__main__":
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    write_task_file(tasks(count, seed), Path(sys.argv[3]))
    longer = [lengthened(task, seed + 1) for task in tasks(count, seed + 1)]
    write_task_file([task for task in longer if task is not None], Path(sys.argv[4]))
    sys.stdout.write(f"{sum(task is None for task in longer)} of {count} long lists left out as not sound\n")
