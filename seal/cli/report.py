"""`seal report`: what a run has shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import refusing

app = typer.Typer(add_completion=False)


@app.command("report")
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder (experiments/NAME).")],
) -> None:
    """Print the summary that ends a run, and draw its curves as report.png in the run's folder."""
    from seal.evaluation.tables import console
    from seal.report import summarise

    with refusing("seal report"):
        console().print(*summarise(run), sep="\n")
