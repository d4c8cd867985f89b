"""The task lists of exp/experiments/fresh.yaml, made from the start policy's rollouts on a pool of new tasks.

python -m benchmarks.fresh FOLDER               # FOLDER/pool.jsonl: as many tasks as POOL
python -m benchmarks.fresh FOLDER EVALUATION    # FOLDER/ARM.json, from the folder of `seal evaluate` on the pool
"""

import random
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.entries import tasks
from env_service.environments.bfcl.task_file import MadeTask, read_task_file, write_task_file
from seal.records.trajectory import TrajectoryRecord
from seal.system.files import write_json
from shelf.statistics.log import read_validation_dir

POOL, SEED, REPEATED, TRAINED = 640, 24, 64, 192
LONGER = "two requests"
"""The kind for which a missing call asks; any other failed turn asks for the tools of its reference."""


def kinds(task: MadeTask) -> set[str]:
    """The kinds that a task offers: its reference's tools, and LONGER if it has more than one request."""
    tools = {call.partition("(")[0] for calls in task.reference for call in calls}
    return tools | ({LONGER} if len(task.users) > 1 else set())


def demand(pool: dict[str, MadeTask], rollouts: Sequence[TrajectoryRecord]) -> Counter[str]:
    """How often the failed turns of the rollouts ask for each kind."""
    asked: Counter[str] = Counter()
    for record in rollouts:
        for turn in record.diagnosis:
            if turn["blame"] == "own":
                calls = pool[record.task_id].reference[turn["turn"]]
                missing = turn["label"] == "missing_tool_call"
                asked.update({LONGER} if missing else {call.partition("(")[0] for call in calls})
    return asked


def drawn(pool: Sequence[MadeTask], asked: Counter[str], rng: random.Random) -> list[str]:
    """Draw tasks without repetition; a task's weight is the mean demand for its kinds (Efraimidis and Spirakis)."""
    weights = {task.id: sum(asked[kind] for kind in kinds(task)) / len(kinds(task)) for task in pool}
    keys = {name: rng.random() ** (1 / weight) for name, weight in weights.items() if weight}
    return sorted(keys, key=keys.__getitem__)[-TRAINED:]


def lists(pool: Sequence[MadeTask], rollouts: Sequence[TrajectoryRecord]) -> dict[str, list[str]]:
    """The tasks of each arm. Only `band` knows how often the pool's tasks pass."""
    rng, names, passes = random.Random(SEED), [task.id for task in pool], defaultdict(list)
    for record in rollouts:
        passes[record.task_id].append(record.passed)
    fresh = rng.sample(names, TRAINED)
    same, between = fresh[:REPEATED], [name for name in names if 0 < sum(passes[name]) < len(passes[name])]
    asked = demand({task.id: task for task in pool}, [each for each in rollouts if each.task_id in same])
    every = sorted(set().union(*map(kinds, pool)))
    exchanged = Counter(dict(zip(every, rng.sample([asked[kind] for kind in every], len(every)), strict=True)))
    label, permuted = (drawn(pool, each, rng) for each in (asked, exchanged))
    return {"same": same, "fresh": fresh, "band": rng.sample(between, TRAINED), "label": label, "permuted": permuted}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if len(sys.argv) == 2:
        write_task_file(tasks(POOL, SEED), folder / "pool.jsonl")
    else:
        found = read_validation_dir(Path(sys.argv[2])).lines
        for arm, ids in lists(list(read_task_file(folder / "pool.jsonl")), found).items():
            write_json(ids, folder / f"{arm}.json")
