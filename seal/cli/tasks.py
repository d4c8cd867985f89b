"""`seal tasks`: synthesise, show and check tasks."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import ListCommand, option, refusing

app = typer.Typer(help="Synthesise, show and check tasks of your own.", no_args_is_help=True, add_completion=False)

File = Annotated[Path, typer.Argument(help="File of tasks (JSONL).", show_default=False)]


class WriterName(StrEnum):
    """The writers that put a call path into words."""

    grammar = "grammar"


class LevelName(StrEnum):
    """What is new in the tasks."""

    train = "train"
    values = "values"
    phrases = "phrases"
    paths = "paths"


@app.command(cls=ListCommand)
def synthesise(
    out: Annotated[Path, option("File to write.", "FILE")],
    writer: Annotated[WriterName, option("Who puts a call path into words.")] = WriterName.grammar,
    count: Annotated[int, typer.Option(min=1, help="Number of tasks.")] = 1000,
    seed: Annotated[int, option("The same seed gives the same file.")] = 0,
    level: Annotated[
        LevelName, option("New to training: nothing, values, some phrases, or paths too.")
    ] = LevelName.train,
    min_turns: Annotated[int, typer.Option(min=1, max=7, help="The fewest requests of a task.")] = 1,
    max_turns: Annotated[int, typer.Option(min=1, max=7, help="The most requests of a task.")] = 4,
    classes: Annotated[list[str] | None, option("Simulators to use; all by default.", "NAME...")] = None,
) -> None:
    """Make verified tasks and write them to a file."""
    import time

    from rich.console import Console
    from rich.progress import track

    from env_service.environments.bfcl.task_file import write_task_file
    from seal.synthesis.grammar import Grammar
    from seal.synthesis.make import Draws
    from seal.synthesis.make import synthesise as make
    from seal.synthesis.sampler import sampler_settings

    draws, began = Draws(), time.process_time()
    with refusing("seal tasks synthesise"):
        settings = sampler_settings(classes, range(min_turns, max_turns + 1))
        made = make({"grammar": Grammar}[writer.value](), count, seed, level.value, settings, draws)
        console = Console(stderr=True)
        write_task_file(track(made, "synthesising", total=count, console=console, disable=not console.is_terminal), out)
    rate = draws.kept / (time.process_time() - began)
    typer.echo(f"{out}: {draws.kept} tasks of {draws.made} draws, {rate:.0f} per CPU second")


@app.command()
def show(
    file: File,
    task_id: Annotated[str | None, typer.Argument(help="Show this task in full; its last digits are enough.")] = None,
) -> None:
    """List the tasks of a file, or show one in full."""
    from env_service.environments.bfcl.task_file import read_task_file
    from seal.synthesis.show import describe, overview

    with refusing("seal tasks show"):
        tasks = read_task_file(file)
        if task_id is None:
            typer.echo(overview(tasks))
            return
        found = [task for task in tasks if task.id.endswith(task_id)]
        if len(found) != 1:
            raise ValueError(f"{len(found)} tasks of {file} have an id that ends with {task_id!r}: give a whole id.")
        typer.echo(describe(found[0]))


@app.command()
def check(file: File) -> None:
    """Verify ids, references and sources of a file's tasks; exits with 1 if something is wrong."""
    from env_service.environments.bfcl.task_file import parse_task_file
    from seal.synthesis.check import problems

    with refusing("seal tasks check"):
        tasks, bad = parse_task_file(file)
    found = [*map(str, bad), *problems(tasks)]
    for problem in found:
        typer.echo(problem, err=True)
    if not tasks and not bad:
        typer.echo(f"{file} holds no task: make it with seal tasks synthesise.", err=True)
    if found or not tasks:
        raise typer.Exit(1)
    typer.echo(f"{file}: {len(tasks)} tasks; the verifier passes every reference and needs each of its calls")
