"""How the reward of a run's tasks changed between the first and the last step that played them.

The means of a run's first and last steps also differ because other tasks are drawn; this
difference is paired by task.
"""

import math
import statistics
from typing import NamedTuple

from seal.records.folder import RunFolder
from seal.records.validation import read_log
from seal.system.jsonl import step_files
from shelf.view.report.run import Change, by_task


class Practice(NamedTuple):
    """The number of tasks that several steps played, and the change of their mean reward, paired by task."""

    tasks: int
    change: Change


def practice(folder: RunFolder) -> Practice | None:
    """The practice of a run, from its logged trajectories; None if fewer than two tasks came back.

    What infrastructure lost does not count.
    """
    rewards: dict[tuple[str, int], list[float]] = {}
    for _step, path in step_files(folder.trajectories):
        for task, lines in by_task(read_log(path).lines).items():
            rewards.setdefault(task, []).append(statistics.fmean(line.score for line in lines))
    pairs = [(means[0], means[-1]) for means in rewards.values() if len(means) > 1]
    if len(pairs) < 2:
        return None
    error = statistics.stdev(last - first for first, last in pairs) / math.sqrt(len(pairs))
    before, after = map(statistics.fmean, zip(*pairs, strict=True))
    return Practice(len(pairs), Change(before, after, error))
