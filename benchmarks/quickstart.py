"""Did training move what it optimises? `python benchmarks/quickstart.py RUN...` over runs of several seeds.

Compares the mean training reward of the last quarter of the steps with the
first quarter's, with the standard error of the step means; and, if a run was
validated twice, the pass rates before and after, paired by task.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from seal.evaluation.comparison import Side, compare
from seal.report.run import Change, Run, read_run

MIN_STEPS = 8


def reward_change(run: Run) -> Change:
    """Last quarter of the steps against the first; SystemExit if a quarter has fewer than two steps."""
    change = run.reward_change
    if len(run.steps) < MIN_STEPS or change is None:
        raise SystemExit(f"{run.folder.path} has {len(run.steps)} steps; at least {MIN_STEPS} are needed.")
    return change


def pass_rate_changes(run: Run) -> dict[str, Change]:
    """By data source: pass rates at the last validation against the first, paired by task; empty for one validation."""
    if run.validation is None or len(run.validation.steps) < 2:
        return {}
    before, after = (
        Side("", (run.validation.at(step),)) for step in (run.validation.steps[0], run.validation.steps[-1])
    )
    rates = {row.name: row.pass_rate for row in compare(before, after) if not row.is_average}
    return {name: Change(rate.mean_a, rate.mean_b, rate.standard_error) for name, rate in rates.items()}


def main(runs: Annotated[list[Path], typer.Argument(help="Folders under experiments/.")]) -> None:
    """Compare the rewards and pass rates of quickstart runs before and after training."""
    read = {path.name: read_run(path) for path in runs}
    rewards = {name: reward_change(run) for name, run in read.items() if run.steps}
    rows = {f"{name}: training reward, first and last quarter": change for name, change in rewards.items()}
    if len(rewards) > 1:
        rows[f"all {len(rewards)}: training reward"] = Change.pooled(list(rewards.values()))
    for name, run in read.items():
        rows |= {f"{name}: {source}, pass rate": change for source, change in pass_rate_changes(run).items()}
    table = Table("what", "before", "after", "change ± standard error", title="Quickstart")
    for name, change in rows.items():
        table.add_row(name, f"{change.before:.3f}", f"{change.after:.3f}", str(change))
    Console(width=120).print(table)


if __name__ == "__main__":
    typer.run(main)
