"""`seal env`: list environments, write a new one's package, show its tasks, and check that it keeps the contract."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from env_service.environments.base import Environment
from seal.cli.commands import option, refusing

app = typer.Typer(help="List, write, show and check environments.", no_args_is_help=True, add_completion=False)

_NONCONFORMING = 1
_MARKS = {"pass": "[green]pass[/green]", "fail": "[red]FAIL[/red]", "skipped": "[yellow]skip[/yellow]"}

Name = Annotated[str, typer.Argument(help="The environment's name.", show_default=False)]
Location = Annotated[
    str | None, option("Where to find it if it is not installed; the working folder is searched.", "MODULE:CLASS")
]


def _environment(name: str, location: str | None) -> Environment:
    from env_service.environments.registry import get_environment, register

    if location is not None:
        sys.path.insert(0, str(Path.cwd()))
        register(name, location)
    return get_environment(name)


@app.command("list")
def list_environments() -> None:
    """List the environments that recipes can name, and where they come from."""
    from env_service.environments.registry import get_environment, locations

    table = Table("name", "from", "tasks", box=None)
    for name, location in sorted(locations().items()):
        try:
            environment = get_environment(name)
            sides = ", ".join(f"{len(environment.task_ids(side))} {side}" for side in ("train", "eval"))
        except (Exception, SystemExit) as error:  # a package is third-party code and can raise anything
            sides = str(error) or type(error).__name__
        table.add_row(name, location, sides)
    Console(emoji=False, markup=False).print(table)


@app.command()
def new(
    name: Name, out: Annotated[Path | None, option("Folder to write (default: the name).", "FOLDER")] = None
) -> None:
    """Write the package of a new environment: a working example, its tests, and the entry point."""
    from shelf.authoring.scaffold import write_package

    with refusing("seal env new"):
        for path in write_package(name, out or Path(name)):
            Console(emoji=False, markup=False).print(str(path), highlight=False)


@app.command()
def show(
    name: Name,
    task: Annotated[str | None, typer.Argument(help="A task's id (default: the first training task).")] = None,
    mode: Annotated[str | None, option("Prompt format (default: the environment's first).", "MODE")] = None,
    location: Location = None,
) -> None:
    """Print one task, played by its reference: what a policy reads, what it should say, and the verdict."""
    from shelf.authoring.runs import dialogue, play, reference_run, sample

    console = Console(emoji=False, soft_wrap=True)
    with refusing("seal env show", RuntimeError):
        environment = _environment(name, location)
        run = reference_run(environment, task or sample(environment, 1)[0], mode or environment.formats[0])
        answers = play(environment, run)
    for message in dialogue(run.messages, answers):
        console.print(f"[bold]{message['role']}[/bold]")
        console.print(message["content"] + "\n", markup=False, highlight=False)
    verdict = "passed" if answers[-1]["valid"] else "NOT passed"
    said = f"{run.task_id} ({environment.task(run.task_id).category}): {verdict}, {' '.join(answers[-1]['labels'])}"
    console.print(said, markup=False)


@app.command()
def check(
    name: Name,
    tasks: Annotated[int, typer.Option(min=1, help="Training tasks to play, at least one of each category.")] = 12,
    floor: Annotated[float, option("Episodes per second of processor time that it must reach.", "N")] = 5.0,
    location: Location = None,
) -> None:
    """Check that an environment keeps the contract: determinism, replay, isolation, deadlines, verdicts, leaks, speed.

    Also prints the labels whose rules are off in the environment.
    Exit code 1: a check fails; its line shows the first example.
    """
    from shelf.authoring.conformance import conformance

    console, failed = Console(emoji=False, soft_wrap=True), 0
    with refusing("seal env check"):
        environment = _environment(name, location)
        for finding in conformance(name, tasks, floor):
            console.print(f"{_MARKS[finding.outcome]}  {finding.check:<18}", end="")
            console.print(finding.detail, markup=False, highlight=False)
            failed += finding.outcome == "fail"
    for label, reason in environment.ungrounded.items():
        console.print(f"off   {label}: {reason}", markup=False, highlight=False)
    if failed:
        console.print(f"{name} does not conform: {failed} checks fail.", highlight=False)
        raise typer.Exit(_NONCONFORMING)
