"""`seal report`: what a run has shown."""

from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import refusing

app = typer.Typer(add_completion=False)


@app.command("report")
def report(run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run (experiments/NAME).")]) -> None:
    """Print what a run has shown, and draw its curves as report.png in its folder."""
    from shelf.statistics.tables import console

    with refusing("seal report"):
        from shelf.view.report.summary import summarise  # matplotlib needs a writable folder

        console().print(*summarise(run), sep="\n")
