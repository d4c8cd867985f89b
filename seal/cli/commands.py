"""Code that the commands share: options with their help, and refusals in one sentence."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console

from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.files import full_folder


@contextmanager
def refusing(command: str, *more: type[Exception]) -> Iterator[None]:
    """Turn an error in the block that a user can fix into one sentence on stderr and exit code 2."""
    try:
        yield
    except (ValueError, OSError, LaunchError, *more) as error:
        full = full_folder(sys.argv[1:]) if isinstance(error, OSError) and error.errno == errno.ENOSPC else None
        said = f"{full} has no space left: make room there, or name another folder." if full else error
        Console(emoji=False, stderr=True, soft_wrap=True).print(f"{command}: {said}", markup=False)
        raise typer.Exit(exits.USAGE) from None


def option(text: str, metavar: str | None = None, panel: str | None = None, least: float | None = None) -> Any:
    """An option with its help, the name and the minimum of its value, and the heading under which the help lists it."""
    return typer.Option(help=text, metavar=metavar, rich_help_panel=panel, min=least)
