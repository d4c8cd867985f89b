"""The command `seal`. Each subcommand is a module of this package, imported only when it is used.

A module `seal.cli.NAME` has an `app`, a typer.Typer without completion of its own: one
command, or several as a group. Exit code 2: the command line cannot be read.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, NamedTuple

import typer
from dotenv import load_dotenv
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from seal import __version__, exits
from seal.paths import HOME


class Entry(NamedTuple):
    """How the help lists a command: its section and one sentence; extra: the packages that it needs."""

    section: str
    summary: str
    extra: str = "train"


TRAINING, RESULTS, PARTS = "Training", "Results", "Parts"
COMMANDS = {
    "train": Entry(TRAINING, "Run a recipe: rollouts, diagnosis, updates, checkpoints and validation."),
    "doctor": Entry(TRAINING, "Check whether a recipe can run on this machine, and say how to fix what is missing."),
    "plan": Entry(TRAINING, "Print the rows, batches and token budgets of a recipe's training step."),
    "experiment": Entry(TRAINING, "Plan, run and judge a matrix of runs: arms, seeds, effects, power."),
    "settings": Entry(TRAINING, "Explain the settings of a recipe: type, bounds, default and meaning."),
    "report": Entry(RESULTS, "Summarise a run as text and curves."),
    "view": Entry(RESULTS, "Look at runs in a browser: curves, failures, groups, trajectories, cues."),
    "stats": Entry(RESULTS, "Tabulate and compare validation logs."),
    "evaluate": Entry(RESULTS, "Evaluate a model, checkpoint or endpoint on the benchmark."),
    "rescore": Entry(RESULTS, "Judge stored episodes again by the present checker, taxonomy and reward."),
    "export": Entry(RESULTS, "Turn a checkpoint into a model folder with a card, and the run's interface."),
    "certify": Entry(RESULTS, "Write a run into one file that others can check."),
    "verify": Entry(RESULTS, "Play a certified run again and say what agrees."),
    "trace": Entry(RESULTS, "Export a run's trajectories as OpenTelemetry traces."),
    "diagnose": Entry(RESULTS, "Label the turns of logged trajectories."),
    "serve": Entry(PARTS, "Start the environment service.", extra="service"),
    "env": Entry(PARTS, "List environments, write a new one, and check that one keeps the contract."),
    "data": Entry(PARTS, "Prepare, check and select the tasks."),
    "tasks": Entry(PARTS, "Synthesise, show and check tasks of your own."),
    "policy": Entry(PARTS, "Make and measure the small policy of the quickstart."),
}
MARKS = {"service": "fastapi", "train": "omegaconf"}
"""A module of each extra, by which a missing extra is told from one missing package."""


class LazyGroup(TyperGroup):
    """Lists COMMANDS without importing them, and imports the one that is used."""

    def list_commands(self, ctx) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx, cmd_name: str) -> TyperCommand | None:
        """What the help and the completion show of a command; resolve_command has the command itself."""
        entry = COMMANDS.get(cmd_name)
        return entry and TyperCommand(cmd_name, help=entry.summary, rich_help_panel=entry.section)

    def resolve_command(self, ctx, args):
        self.commands = dict.fromkeys(COMMANDS)  # what a misspelt name is compared with
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if command else None, rest


def load(name: str):
    """The command `seal NAME`."""
    return typer.main.get_command(import_module(f"seal.cli.{name}").app)


app = typer.Typer(cls=LazyGroup, rich_markup_mode="rich", context_settings={"help_option_names": ["-h", "--help"]})


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"seal {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _seal(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Reinforcement learning of tool-use agents from diagnosed failures."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def execute(command, arguments: Sequence[str], program: str) -> int:
    """Run a command line; returns the exit code. What cannot be read is one sentence on stderr."""
    load_dotenv(HOME / ".env")
    try:
        return (
            command.main(list(arguments), prog_name=program, standalone_mode=False, help_option_names=["-h", "--help"])
            or exits.FINISHED
        )
    except typer.Abort:
        return exits.REFUSED
    except ModuleNotFoundError as error:
        name = next((word for word in (*program.split(), *arguments) if word in COMMANDS), None)
        if name is None or find_spec(MARKS[COMMANDS[name].extra]):
            raise
        _say(f"seal {name}: {error.name} is not installed: pip install 'seal-rl[{COMMANDS[name].extra}]'.")
        return exits.USAGE
    except typer.TyperException as error:
        # Without a message the help has been printed.
        if message := error.format_message().removeprefix("Invalid value: ").replace("Value error, ", ""):
            path = error.ctx.command_path if getattr(error, "ctx", None) else program
            sentence = f"{path}: {message.rstrip('.')} ({path} --help lists what it takes)."
            _say(sentence)
        return exits.USAGE


def _say(sentence: str) -> None:
    Console(stderr=True, soft_wrap=True).print(sentence, markup=False, highlight=False)


def main() -> int:
    """The entry point of the script `seal`."""
    return execute(typer.main.get_command(app), sys.argv[1:], "seal")
