"""`seal env`: list environments, write a new one's package, and check that one keeps the contract."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from seal.cli.commands import option, refusing

app = typer.Typer(help="List environments, write a new one, and check one.", no_args_is_help=True, add_completion=False)

_NONCONFORMING = 1
_MARKS = {"pass": "[green]pass[/green]", "fail": "[red]FAIL[/red]", "skipped": "[yellow]skip[/yellow]"}

Name = Annotated[str, typer.Argument(help="The environment's name.", show_default=False)]


@app.command("list")
def list_environments() -> None:
    """List the environments that recipes can name, and where they come from."""
    from env_service.environments.registry import get_environment, locations

    table = Table(box=None)
    for column in ("name", "from", "tasks"):
        table.add_column(column)
    for name, location in sorted(locations().items()):
        try:
            environment = get_environment(name)
            sides = ", ".join(f"{len(environment.task_ids(side))} {side}" for side in ("train", "eval"))
        except ValueError as error:
            sides = str(error)
        table.add_row(name, location, sides)
    Console().print(table)


@app.command()
def new(
    name: Name,
    out: Annotated[Path | None, option("Folder to write (default: the name).", "FOLDER")] = None,
) -> None:
    """Write the package of a new environment: a working example, its tests, and the entry point."""
    from shelf.authoring.scaffold import write_package

    with refusing("env new"):
        for path in write_package(name, out or Path(name)):
            Console().print(str(path), highlight=False)


@app.command()
def check(
    name: Name,
    tasks: Annotated[int, typer.Option(min=1, help="Training tasks to play.")] = 12,
    floor: Annotated[float, option("Episodes per second of processor time that it must reach.", "N")] = 5.0,
    location: Annotated[
        str | None, option("Where to find it if it is not installed; the working folder is searched.", "MODULE:CLASS")
    ] = None,
) -> None:
    """Check that an environment keeps the contract: determinism, replay, isolation, deadlines, verdicts, leaks, speed.

    Also prints the labels whose rules are off in the environment. Exit code 1: a check does not pass; its line
    shows the first example.
    """
    from env_service.environments.registry import get_environment, register
    from shelf.authoring.conformance import conformance

    console, failed = Console(soft_wrap=True), 0
    with refusing("env check"):
        if location is not None:
            sys.path.insert(0, str(Path.cwd()))
            register(name, location)
        for finding in conformance(name, tasks, floor):
            console.print(f"{_MARKS[finding.outcome]}  {finding.check:<18}", end="")
            console.print(finding.detail, markup=False, highlight=False)
            failed += not finding.passed
    for label, reason in get_environment(name).ungrounded.items():
        console.print(f"off   {label}: {reason}", markup=False, highlight=False)
    if failed:
        console.print(f"{name} does not conform: {failed} checks do not pass.", highlight=False)
        raise typer.Exit(_NONCONFORMING)


if __name__ == "__main__":
    app()
