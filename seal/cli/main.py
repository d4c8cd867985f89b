"""The command `seal`. Each subcommand is a module that is imported only when it is used."""

import errno
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from traceback import walk_tb
from typing import Annotated, NamedTuple

import typer
from dotenv import load_dotenv
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from env_service import BENCHMARK, MODULE
from seal import __version__
from seal.system import exits
from seal.system.files import full_folder
from seal.system.paths import HOME


class Entry(NamedTuple):
    """A command's entry in the help: its section and one sentence; extra: the packages that it needs.

    module: defines `app`, a typer.Typer without completion of its own: one command, or several as a group.
    """

    section: str
    summary: str
    module: str
    extra: str = "train"


GROUP = "seal.commands"
"""The entry points of packages that add commands: each is a mapping of names to Entry (docs/extend.md)."""

TRAINING, RESULTS, PARTS = SECTIONS = "Training", "Results", "Parts"
CORE = {
    "train": Entry(
        TRAINING, "Run a recipe: rollouts, diagnosis, updates, checkpoints and validation.", "seal.cli.train"
    ),
    "serve": Entry(PARTS, "Start the environment service.", "seal.cli.serve"),
}
REINSTALL = "run `bash install.sh` again, or `pip install --no-deps -e .` in the environment of this checkout"


@cache
def _read_entries() -> tuple[dict[str, Entry], tuple[str, ...]]:
    """The commands of installed packages, and the entry points whose package is no longer there."""
    added, stale = {}, []
    for point in entry_points(group=GROUP):
        try:
            added |= point.load()
        except (ImportError, AttributeError):
            stale.append(point.value)
    return added, tuple(stale)


@cache
def commands() -> Mapping[str, Entry]:
    """The commands of the core and of installed packages, by section; none replaces one of the core."""
    return dict(sorted((_read_entries()[0] | CORE).items(), key=lambda item: SECTIONS.index(item[1].section)))


def unregistered() -> str | None:
    """Why commands of the shelf may be missing, and what to do; None if every registered package is there."""
    added, stale = _read_entries()
    if stale:
        return f"this environment was installed from another version (it registers {', '.join(stale)}): {REINSTALL}"
    return None if added else f"only the core's commands are registered in this environment: {REINSTALL}"


class LazyGroup(TyperGroup):
    """Lists the commands without importing them, and imports the one that is used."""

    def list_commands(self, ctx) -> list[str]:
        return list(commands())

    def get_command(self, ctx, cmd_name: str) -> TyperCommand | None:
        """Return a command as the help and the completion show it; resolve_command has the command itself."""
        entry = commands().get(cmd_name)
        return entry and TyperCommand(cmd_name, help=entry.summary, rich_help_panel=entry.section)

    def resolve_command(self, ctx, args):
        if args and args[0] not in commands() and (reason := unregistered()):
            ctx.fail(f"No such command {args[0]!r}: {reason}.")
        self.commands = dict.fromkeys(commands())  # what a misspelt name is compared with
        name, command, rest = super().resolve_command(ctx, args)
        return name, load(name) if command else None, rest


def load(name: str):
    """The command `seal NAME`."""
    return typer.main.get_command(import_module(commands()[name].module).app)


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
    """Run a command line; returns the exit code. Input that cannot be used gives one sentence on stderr."""
    try:
        load_dotenv(HOME / ".env")
    except (UnicodeDecodeError, OSError) as error:
        return _refuse(f"{program}: {HOME / '.env'} cannot be read as UTF-8 ({error}): correct it, or remove it.")
    try:
        code = command.main(
            list(arguments), prog_name=program, standalone_mode=False, help_option_names=["-h", "--help"]
        )
        sys.stdout.flush()
    except typer.Abort:
        return exits.REFUSED
    except ModuleNotFoundError as error:
        if not _is_extra(error):
            raise
        name = next((word for word in (*program.split(), *arguments) if word in commands()), "train")  # launcher.py
        package = f"--no-deps {BENCHMARK}" if error.name == MODULE else f"'seal-rl[{commands()[name].extra}]'"
        return _refuse(f"seal {name}: {error.name} is not installed: pip install {package}.")
    except OSError as error:
        if error.errno not in _PLACES:
            raise
        return _refuse(f"{program}: {_place(error)[:200]} cannot be used: {error.strerror}.", exits.REFUSED)
    except typer.TyperException as error:
        path = error.ctx.command_path if getattr(error, "ctx", None) else program
        own = isinstance(error, typer.BadParameter) and error.param is None  # a command's sentence, not the parser's
        message = error.message if own else error.format_message()  # none if the help has been printed
        message = message.replace("Value error, ", "")  # the parser's own prefix
        return _refuse(f"{path}: {message.rstrip('.')} ({path} --help lists what it takes)." if message else "")
    if code in (exits.INTERRUPTED, exits.TERMINATED):
        with suppress(SystemExit):  # `2>&1 | tee` ends with Ctrl-C too
            _refuse(f"{program}: interrupted; the same command resumes where it can.")
    return code or exits.FINISHED


_OWN = ("seal", "env_service", "shelf")
"""Packages of this repository: what one of them cannot import is in an extra, which may not be installed."""

_PLACES = {errno.ENOSPC, errno.ENAMETOOLONG, errno.EACCES, errno.EROFS}
"""Faults of a place that the user names."""


def _is_extra(error: ModuleNotFoundError) -> bool:
    """Return whether one of our packages wants a module of another one."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    wanting, wanted = (name.partition(".")[0] for name in (frame.f_globals["__name__"], error.name or ""))
    return wanting in _OWN and wanted not in _OWN


def _place(error: OSError) -> str:
    """The file that cannot be used, or the folder of the output; nothing more is written to a full disk."""
    if error.errno != errno.ENOSPC:
        return str(error.filename or "the output")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is written at the exit
    return str(error.filename or full_folder(sys.argv[1:]) or "the output")


def _refuse(sentence: str, code: int = exits.USAGE) -> int:
    if sentence:
        Console(emoji=False, stderr=True, soft_wrap=True).print(sentence, markup=False, highlight=False)
    return code


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(exits.TERMINATED))  # `finally` ends what a command started
    return execute(typer.main.get_command(app), sys.argv[1:], "seal")
