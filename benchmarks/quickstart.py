"""Did training move what it optimises? `python benchmarks/quickstart.py RUN...` over runs of several seeds.

Compares the mean training reward of the last quarter of the steps with the
first quarter's, with the standard error of the step means; and, where a run
was validated twice, each task's pass rate before and after, paired by task.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Difference:
    """A mean difference with its standard error."""

    before: float
    after: float
    error: float

    @property
    def change(self) -> float:
        return self.after - self.before

    def row(self) -> tuple[str, str, str, str]:
        errors = f"{self.change / self.error:.1f}" if self.error else "-"
        return f"{self.before:.3f}", f"{self.after:.3f}", f"{self.change:+.3f} ± {self.error:.3f}", errors


def quarters(run: Path) -> tuple[list[float], list[float]]:
    """Mean rewards of the steps in the first and the last quarter."""
    rewards = [line["reward_mean"] for line in _lines(run / "seal_log" / "steps.jsonl")]
    size = len(rewards) // 4
    if size < 2:
        raise SystemExit(f"{run} has {len(rewards)} steps; at least 8 are needed to compare quarters.")
    return rewards[:size], rewards[-size:]


def reward_difference(runs: Sequence[Path]) -> Difference:
    """Last against first quarter over all runs; the error is that of the mean over runs of their step means."""
    first, last = zip(*(quarters(run) for run in runs), strict=True)
    variance = sum(statistics.variance(steps) / len(steps) for side in (first, last) for steps in side) / len(runs) ** 2
    return Difference(_mean(map(_mean, first)), _mean(map(_mean, last)), math.sqrt(variance))


def validation_differences(run: Path) -> dict[str, Difference]:
    """By data source: tasks' pass rates at the last against the first validation, paired by task."""
    steps = sorted(int(path.stem) for path in (run / "validation_log").glob("*.jsonl"))
    if len(steps) < 2:
        return {}
    rates = [_rates(run / "validation_log" / f"{step}.jsonl") for step in (steps[0], steps[-1])]
    found = {}
    for source in rates[0]:
        before, after = (side[source] for side in rates)
        changes = [after[task] - before[task] for task in before]
        error = statistics.stdev(changes) / math.sqrt(len(changes))
        found[source] = Difference(_mean(before.values()), _mean(after.values()), error)
    return found


def _rates(path: Path) -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in _lines(path):
        if line["infra"] is None:
            scores[line["data_source"]][line["task_id"]].append(line["score"])
    return {source: {task: _mean(values) for task, values in tasks.items()} for source, tasks in scores.items()}


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _mean(values) -> float:
    return statistics.fmean(values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="folders under experiments/")
    runs = parser.parse_args().runs
    trained = [run for run in runs if (run / "seal_log" / "steps.jsonl").exists()]
    console = Console(width=120)
    table = Table("what", "before", "after", "change ± standard error", "errors", title="Quickstart")
    for run in trained:
        table.add_row(f"{run.name}: training reward, first and last quarter", *reward_difference([run]).row())
    if len(trained) > 1:
        table.add_row(f"all {len(trained)}: training reward", *reward_difference(trained).row())
    for run in runs:
        for source, difference in validation_differences(run).items():
            table.add_row(f"{run.name}: {source}, pass rate", *difference.row())
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
