"""`seal data`: make and check the benchmark's tasks."""

from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import option, refusing
from seal.system.paths import HOME

app = typer.Typer(help="Make and check the benchmark's tasks.", no_args_is_help=True, add_completion=False)

OUT = HOME / "data"
AcceptChangedData = Annotated[bool, typer.Option("--accept-changed-data", help="Record a package with other data.")]


@app.command()
def prepare(
    out: Annotated[Path, option("Folder to write.")] = OUT, accept_changed_data: AcceptChangedData = False
) -> None:
    """Make the parquet files, the released split and the manifest."""
    from shelf.operate.data import FILES, MANIFEST, RELEASED_SPLIT
    from shelf.operate.data import prepare as make

    with refusing("seal data prepare"):
        made = make(out, accept_changed_data=accept_changed_data)
    package = made["package"]
    typer.echo(f"{package['name']} {package['version']}, data {package['data_hash'][:16]}")
    for (scheme, side), file in FILES.items():
        typer.echo(f"  {out / file} ({scheme}, {side})")
    typer.echo(f"  {out / RELEASED_SPLIT}, {out / MANIFEST}")


@app.command()
def check(out: Annotated[Path, option("Folder to check.")] = OUT) -> None:
    """Verify the files, the splits and the package's data; exit with 1 if something is wrong."""
    from shelf.operate.data import check as find_problems
    from shelf.operate.data import leaks

    with refusing("seal data check"):
        problems = find_problems(out)
    for name, leaked in leaks().items():
        typer.echo(
            f"{name}: {len(leaked)} evaluation tasks have a sibling in train: "
            f"{'NOT held out' if leaked else 'held out'}"
        )
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{out}: everything is as recorded")
