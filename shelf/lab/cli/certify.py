"""`seal certify`: a run as one file that others can check."""

from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import refusing

app = typer.Typer(add_completion=False)


@app.command("certify")
def certify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run (experiments/NAME).")],
    out: Annotated[Path | None, typer.Option(help="The file (default: RUN/NAME.seal.gz).", metavar="FILE")] = None,
) -> None:
    """Write everything that a run's figures follow from into one file, and print its digest.

    `seal verify FILE` plays every episode again and computes every figure from that.
    """
    from shelf.lab.certificate.collect import records
    from shelf.lab.certificate.file import write

    with refusing("seal certify"):
        if not run.is_dir():
            raise ValueError(f"{run} is not a folder: name a run (experiments/NAME).")
        path = out or run / f"{run.resolve().name}.seal.gz"
        digest = write(records(run), path)
    typer.echo(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)\nsha256:{digest}")
