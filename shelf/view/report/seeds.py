"""What several runs of one recipe show together: rewards and pass rates before and after, by run and pooled."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from seal.statistics.comparison import Side, compare
from seal.statistics.tables import table
from shelf.view.report.run import Change, Run, read_run

MIN_STEPS = 8
"""A quarter of them has a standard error."""


def seeds_table(folders: Sequence[Path]) -> Table:
    """Training reward (first and last quarter of the steps) and pass rates (first and last validation) of the runs.

    ValueError for a folder without a run, or for a run with 1 to 7 steps.
    """
    runs = {str(folder): read_run(folder) for folder in folders}
    rewards = {name: _reward_change(name, run) for name, run in runs.items() if run.steps}
    rows = {f"{name}: training reward": change for name, change in rewards.items()}
    if len(rewards) > 1:
        rows[f"all {len(rewards)}: training reward"] = Change.pooled(list(rewards.values()))
    for name, run in runs.items():
        rows |= {f"{name}: {source}, pass rate": change for source, change in _pass_rate_changes(run).items()}
    made = table("Before and after training", ["what", "before", "after", "change ± standard error"])
    for name, change in rows.items():
        made.add_row(name, f"{change.before:.3f}", f"{change.after:.3f}", str(change))
    return made


def _reward_change(name: str, run: Run) -> Change:
    change = run.reward_change
    if len(run.steps) < MIN_STEPS or change is None:
        raise ValueError(f"{name} has {len(run.steps)} steps; at least {MIN_STEPS} are needed to compare quarters.")
    return change


def _pass_rate_changes(run: Run) -> dict[str, Change]:
    steps = run.validation.steps if run.validation else ()
    if len(steps) < 2:
        return {}
    before, after = (Side(str(step), (run.validation.at(step),)) for step in (steps[0], steps[-1]))
    rates = {row.name: row.pass_rate for row in compare(before, after) if not row.is_average}
    return {name: Change(rate.mean_a, rate.mean_b, rate.standard_error) for name, rate in rates.items()}
