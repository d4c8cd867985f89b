"""`seal stats`: statistics of validation logs."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import option, refusing
from shelf.list_command import ListCommand

NAMED_BAD_LINES = 20
COMPARE = "Runs to compare with the first; commas join the seeds of one side; a single run: its first and last step."

app = typer.Typer(add_completion=False)
_read = partial(option, panel="What to read")
_write = partial(option, panel="What to write besides the tables", metavar="FILE")


@app.command("stats", cls=ListCommand)
def stats(
    run: Annotated[Path | None, typer.Argument(help="A run's folder; the same as --val-dir.")] = None,
    val_dir: Annotated[Path | None, _read("A run, or its validation_log folder.", "RUN")] = None,
    compare: Annotated[list[str] | None, _read(COMPARE, "RUN...")] = None,
    step: Annotated[int | None, _read("Only this validation (default: all; --compare: the last).", "N")] = None,
    parquet: Annotated[Path | None, _read("The tasks that every step must have.", "FILE")] = None,
    bfcl_jsonl: Annotated[list[Path] | None, _read("The same, as question files (if no --parquet).", "FILE...")] = None,
    csv: Annotated[Path | None, _write("The figures as CSV.")] = None,
    json: Annotated[Path | None, _write("The figures and all problems as JSON.")] = None,
    band: Annotated[Path | None, _write("Of a run: the tasks that passed sometimes, to train on (JSON).")] = None,
) -> None:
    """Rates with intervals of one run, or paired differences of several (--compare).

    Exits with 0 if every line was usable and no task was missing, 1 otherwise, 2 for bad input.
    """
    from seal.system.files import write_json, write_text
    from shelf.statistics.runs import band as find_band
    from shelf.statistics.runs import compare_runs, expected_tasks, summarise_run
    from shelf.statistics.summary import load_suspected
    from shelf.statistics.tables import console, to_csv

    with refusing("seal stats"):
        if compare:
            if run or val_dir or parquet or bfcl_jsonl or band:
                raise ValueError("--compare names all runs: leave out RUN, --val-dir, --parquet, --bfcl-jsonl, --band.")
            found = compare_runs(compare, load_suspected(), step)
        elif run and val_dir:
            raise ValueError(f"RUN {run} and --val-dir {val_dir} name the same thing: give one of them.")
        elif folder := val_dir or run:
            expected = expected_tasks(parquet, bfcl_jsonl or ())
            found = summarise_run(folder, load_suspected(), step, expected)
            if band:
                write_json({"tasks": find_band(folder, step)}, band)
        else:
            raise ValueError("Nothing to read: give RUN, or --compare RUN RUN.")
        out = console()
        out.print(*found.tables, sep="\n")
        warnings = [found.warning] if found.warning else []
        warnings += [f"{len(found.bad)} bad lines, left out of every figure:"] if found.bad else []
        warnings += [f"  {line}" for line in found.bad[:NAMED_BAD_LINES]]
        more = len(found.bad) - NAMED_BAD_LINES
        warnings += [f"  and {more} more (all in --json)"] if more > 0 else []
        for warning in (*warnings, *found.missing):
            style = None if warning.startswith(" ") else "bold red"
            out.print(warning, style=style, highlight=False, soft_wrap=True)
        if csv:
            write_text(to_csv(found.records), csv)
        if json:
            write_json(found.to_json(), json)
        for path in filter(None, (csv, json, band)):
            out.print(f"wrote {path}", highlight=False)
    if found.problems:
        raise typer.Exit(1)
