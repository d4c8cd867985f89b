"""`seal stats`: statistics of BFCL validation logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import SeveralValues, refusing
from seal.paths import HOME

NAMED_BAD_LINES = 20

app = typer.Typer(add_completion=False)

READ = "What to read"
WRITE = "What to write besides the tables"


@app.command("stats", cls=SeveralValues)
def stats(
    val_dir: Annotated[
        Path | None, typer.Option(metavar="RUN", help="A run, or its validation_log folder.", rich_help_panel=READ)
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN...",
            help="Runs to compare with the first; commas join the seeds of one side; a single run: its first and last "
            "step.",
            rich_help_panel=READ,
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(help="Only this validation step (default: all; --compare: the last).", rich_help_panel=READ),
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option(help="The tasks that every step must have.", rich_help_panel=READ)
    ] = None,
    bfcl_jsonl: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE...", help="The same, as the benchmark's question files.", rich_help_panel=READ),
    ] = None,
    suspected: Annotated[Path, typer.Option(help="The suspected items.", rich_help_panel=READ)] = HOME
    / "data"
    / "suspected_items.json",
    csv: Annotated[Path | None, typer.Option(help="The figures as CSV.", rich_help_panel=WRITE)] = None,
    json: Annotated[
        Path | None, typer.Option(help="The figures and all problems as JSON.", rich_help_panel=WRITE)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Curves over steps, as .png or .html.", rich_help_panel=WRITE)
    ] = None,
) -> None:
    """Rates with intervals of one run (--val-dir), or paired differences of several (--compare).

    Exits with 0 if every line was usable and no task missing, 1 otherwise, 2 for bad input.
    """
    from seal.data.suspected import load_suspected
    from seal.evaluation.plots import save_rates
    from seal.evaluation.stats import compare_runs, expected_tasks, summarise_run
    from seal.evaluation.tables import console, to_csv
    from seal.files import write_json, write_text

    with refusing("seal stats"):
        if compare:
            found = compare_runs(compare, load_suspected(suspected), step)
        elif val_dir is not None:
            expected = expected_tasks(parquet, bfcl_jsonl or ())
            found = summarise_run(val_dir, load_suspected(suspected), step, expected)
        else:
            raise ValueError("Nothing to read: give --val-dir RUN, or --compare RUN RUN.")
        out = console()
        out.print(*found.tables, sep="\n")
        if found.warning:
            out.print(found.warning, style="bold red", soft_wrap=True)
        if found.bad:
            out.print(f"{len(found.bad)} bad lines, left out of every figure:", style="bold red")
            for line in found.bad[:NAMED_BAD_LINES]:
                out.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
            if len(found.bad) > NAMED_BAD_LINES:
                out.print(f"  and {len(found.bad) - NAMED_BAD_LINES} more (all in --json)")
        for problem in found.missing:
            out.print(problem, style="bold red", markup=False, highlight=False, soft_wrap=True)
        if csv:
            write_text(to_csv(found.records), csv)
        if json:
            write_json(found.to_json(), json)
        if plot:
            save_rates(found.curves, found.tables, plot)
        for path in filter(None, (csv, json, plot)):
            out.print(f"wrote {path}", highlight=False)
    if found.problems:
        raise typer.Exit(1)
