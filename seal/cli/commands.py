"""What the commands share: options with several values, and refusals in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperCommand

from seal.system import exits
from seal.system.errors import LaunchError


class ListCommand(TyperCommand):
    """A command whose list options take several values: ``--categories base miss_func``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its values."""
        lists = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        spread: list[str] = []
        current = None
        for argument in args:
            if argument.startswith("--"):
                current = argument if argument in lists else None
            elif current and spread[-1] != current:
                spread.append(current)
            spread.append(argument)
        return super().parse_args(ctx, spread)


@contextmanager
def refusing(command: str, *more: type[Exception]) -> Iterator[None]:
    """Turn an error in the block that a user can fix into one sentence on stderr and exit code 2."""
    try:
        yield
    except (ValueError, OSError, LaunchError, *more) as error:
        Console(stderr=True, soft_wrap=True).print(f"{command}: {error}", markup=False)
        raise typer.Exit(exits.USAGE) from None


def option(text: str, metavar: str | None = None, panel: str | None = None, least: float | None = None) -> Any:
    """An option with its help, the name and the least of its values, and the heading under which the help lists it."""
    return typer.Option(help=text, metavar=metavar, rich_help_panel=panel, min=least)
