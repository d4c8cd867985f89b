"""`seal view`: look at runs in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import refusing
from seal.system.net import LOOPBACK

app = typer.Typer(add_completion=False)


@app.command("view")
def view(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN...]",
            help="Folders of runs (experiments/NAME); commas join the seeds of an arm, ARM=RUN,RUN names it. "
            "Without any: every run in experiments.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to serve on; any but loopback requires a token.")] = LOOPBACK,
    port: Annotated[int, typer.Option(help="Port; 0 chooses a free one.", min=0, max=65535)] = 8090,
    export: Annotated[Path | None, typer.Option(help="Write one self-contained page instead of serving.")] = None,
    sample: Annotated[int, typer.Option(help="Trajectories in an exported page.", min=0, max=2000)] = 60,
    replay: Annotated[
        str,
        typer.Option(help="Print the address of a page that plays train:STEP:LINE or validation:STEP:LINE again."),
    ] = "",
) -> None:
    """Show curves, failures, groups, trajectories and cues of runs in a local web page, also while they train.

    The viewer only reads; its index is kept beside the logs (view_index.sqlite) and can be removed.
    On an address that other machines can reach, it asks for a token: that of SEAL_VIEW_TOKEN, or one that it prints.
    """
    from seal.system.paths import HOME
    from shelf.view.runs import find_runs

    with refusing("seal view"):
        found = find_runs(runs or [], HOME / "experiments")
        if export is not None:
            from shelf.view.export import write_page

            size = write_page(found, export, sample)
            typer.echo(f"{export}: {size / 1e6:.1f} MB")
            return
        from shelf.view.app import serve

        serve(found, host, port, replay)
