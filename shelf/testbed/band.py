"""The band: tasks that a policy solves sometimes, so that the rewards of a group differ.

A group whose rollouts all fail or all pass has no group-relative advantage.
Measured on repeated samples of training tasks, never on the evaluation side.
"""

from pathlib import Path
from statistics import fmean
from typing import Any

from env_service.environments.bfcl.splits import side_of
from seal.system.files import file_sha256
from shelf.statistics.log import read_log


def find_band(log: Path | str, low: float = 0.0, high: float = 1.0) -> dict[str, Any]:
    """The band of a validation log with several samples per task, as JSON that Selection.task_file reads.

    Its `tasks` have a pass rate strictly between low and high; turns is the prefix
    that was measured, -1 for the whole task. Lines that failed for reasons other than
    the policy are left out. ValueError if the log has bad lines, only one sample per
    task, tasks of the evaluation side, or nothing inside the band.
    """
    if not 0.0 <= low < high <= 1.0:
        raise ValueError(f"The band from {low} to {high} is empty: give 0 <= low < high <= 1.")
    path = Path(log)
    lines = read_log(path).without_bad()
    if held := sorted({line.task_id for line in lines if side_of(line.task_id) == "eval"}):
        raise ValueError(
            f"{len(held)} of the tasks belong to the evaluation side ({held[0]} is the first) and must not be used "
            "for the training band: measure tasks of the training side (seal.data.val: [{split: train}])."
        )
    counts: dict[tuple[str, int], list[bool]] = {}
    for line in lines:
        if line.infra is None:
            counts.setdefault(line.task, []).append(line.passed)
    if max(map(len, counts.values()), default=0) < 2:
        raise ValueError(f"{path} has one sample per task: a band needs several (validate with val_kwargs.n above 1).")
    tasks = [
        {"task_id": task, "turns": turns, "rate": fmean(passed), "passed": sum(passed), "n": len(passed)}
        for (task, turns), passed in counts.items()
    ]
    inside = [task for task in tasks if low < task["rate"] < high]
    if not inside:
        raise ValueError(
            f"None of the {len(tasks)} tasks in {path} has a pass rate strictly between {low} and {high}: "
            "take more samples, shorter prefixes or another checkpoint."
        )
    return {
        "low": low,
        "high": high,
        "measured": len(tasks),
        "tasks": inside,
        "source": str(path),
        "source_sha256": file_sha256(path),
        "data_hashes": sorted({line.data_hash for line in lines if line.data_hash}),
    }
