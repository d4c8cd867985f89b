"""`seal report`: what a run has shown."""

from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import refusing

app = typer.Typer(add_completion=False)


@app.command("report")
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs (experiments/NAME).")],
) -> None:
    """Print what a run has shown, and draw its curves as report.png in its folder.

    Several runs (seeds of one recipe) are compared before and after training instead, with standard errors.
    """
    from seal.statistics.tables import console
    from shelf.view.report import seeds_table, summarise

    with refusing("seal report"):
        console().print(*(summarise(runs[0]) if len(runs) == 1 else [seeds_table(runs)]), sep="\n")
