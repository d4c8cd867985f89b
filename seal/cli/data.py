"""`seal data`: make, check and select the benchmark's tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import SeveralValues, refusing

app = typer.Typer(no_args_is_help=True, add_completion=False)

OUT = Path("data")


@app.callback()
def data() -> None:
    """Make, check and select the benchmark's tasks."""


@app.command()
def prepare(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = OUT,
    accept_changed_data: Annotated[
        bool, typer.Option("--accept-changed-data", help="Record a package with other data.")
    ] = False,
) -> None:
    """Make the parquet files, the released split and the manifest."""
    from seal.data.prepare import FILES, MANIFEST, RELEASED_SPLIT
    from seal.data.prepare import prepare as make

    with refusing("seal data prepare"):
        made = make(out, accept_changed_data=accept_changed_data)
    package = made["package"]
    typer.echo(f"{package['name']} {package['version']}, data {package['data_hash'][:16]}")
    for (scheme, side), file in FILES.items():
        typer.echo(f"  {out / file}: {made['files'][file]['rows']} rows ({scheme}, {side})")
    typer.echo(f"  {out / RELEASED_SPLIT}, {out / MANIFEST}")


@app.command()
def check(
    out: Annotated[Path, typer.Option(help="Folder to check.")] = OUT,
    siblings: Annotated[
        bool, typer.Option("--siblings", help="Name the evaluation tasks with a sibling in train.")
    ] = False,
) -> None:
    """Verify the files, the splits and the package's data; exits with 1 if something is wrong."""
    from seal.data.prepare import check as find_problems
    from seal.data.prepare import split_facts

    with refusing("seal data check"):
        problems = find_problems(out)
    for facts in split_facts():
        verdict = "held out" if facts.held_out else "NOT held out"
        typer.echo(
            f"{facts.name}: {facts.train} train, {facts.eval} evaluation tasks; {len(facts.siblings)} evaluation tasks "
            f"have a sibling in train: {verdict}"
        )
        for task in facts.siblings if siblings else ():
            typer.echo(f"  {task}")
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{out}: everything is as recorded")


@app.command(cls=SeveralValues)
def select(
    out: Annotated[Path, typer.Option(help="Parquet file to write.")],
    split: Annotated[str, typer.Option(help="Side of the split: train or eval.")] = "train",
    scheme: Annotated[str, typer.Option(help="Split: scenario or released_ids.")] = "scenario",
    categories: Annotated[
        list[str] | None, typer.Option(metavar="NAME...", help="base, miss_func, miss_param, long_context.")
    ] = None,
    classes: Annotated[
        list[str] | None, typer.Option(metavar="NAME...", help="Tasks that use at least one of these simulators.")
    ] = None,
    scenarios: Annotated[list[int] | None, typer.Option(metavar="N...", help="These scenarios.")] = None,
    min_turns: Annotated[int | None, typer.Option(help="Tasks with at least N user turns.", metavar="N")] = None,
    max_turns: Annotated[int | None, typer.Option(help="Tasks with at most N user turns.", metavar="N")] = None,
    prefix_turns: Annotated[
        list[int] | None, typer.Option(metavar="K...", help="Keep only the first k user turns, for each k.")
    ] = None,
    task_file: Annotated[str | None, typer.Option(help="List of task ids, or a band.")] = None,
    labels_from: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="RUN LABEL", help="Tasks whose last label in an earlier run was LABEL."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="At most N rows per data source, evenly spread.")
    ] = None,
) -> None:
    """Write a parquet file of selected tasks, or of prefixes of tasks."""
    from seal.data.selection import Selection, write_parquet

    chosen = {
        "split": split,
        "scheme": scheme,
        "categories": categories,
        "classes": classes,
        "scenarios": scenarios,
        "min_turns": min_turns,
        "max_turns": max_turns,
        "prefix_turns": prefix_turns,
        "task_file": task_file,
        "labels_from": [dict(zip(("run", "label"), labels_from, strict=True))] if labels_from else None,
        "limit": limit,
    }
    with refusing("seal data select"):
        given = {name: value for name, value in chosen.items() if value not in (None, [])}
        typer.echo(f"{out}: {write_parquet(Selection.from_config(given), out)} rows")


@app.command()
def band(
    log: Annotated[Path, typer.Option(help="Validation log with several samples per task.")],
    out: Annotated[Path, typer.Option(help="JSON file to write.")],
    low: Annotated[float, typer.Option(help="Pass rate strictly above.")] = 0.0,
    high: Annotated[float, typer.Option(help="Pass rate strictly below.")] = 1.0,
) -> None:
    """Find the training tasks that a policy solves sometimes."""
    from seal.data.band import find_band
    from seal.files import write_json

    with refusing("seal data band"):
        found = find_band(log, low, high)
        write_json(found.to_json(), out)
    samples = sum(task.samples for task in found.tasks)
    mean = sum(task.passed for task in found.tasks) / samples
    typer.echo(
        f"{out}: {len(found.tasks)} of {found.measured} tasks have a pass rate between {low:g} and {high:g} "
        f"(mean {mean:.3f} over {samples} samples)"
    )
