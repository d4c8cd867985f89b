"""What the commands share: options with several values, and refusals in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from typer.core import TyperCommand

BAD_INPUT = 2


class SeveralValues(TyperCommand):
    """A command whose list options take several values at once: `--classes A B` is `--classes A --classes B`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat a list option before each of its further values, then parse as usual."""
        several = {name for param in self.params if getattr(param, "multiple", False) for name in param.opts}
        spread: list[str] = []
        option, valued = "", False
        for position, arg in enumerate(args):
            if arg == "--":
                return super().parse_args(ctx, spread + args[position:])
            if arg.startswith("-") and len(arg) > 1:
                option, valued = arg if arg in several else "", False
            elif option:
                spread += [option] if valued else []
                valued = True
            spread.append(arg)
        return super().parse_args(ctx, spread)


@contextmanager
def refusing(command: str) -> Iterator[None]:
    """Turn ValueError and OSError in the block into one sentence on stderr and exit code 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"{command}: {error}", markup=False)
        raise typer.Exit(BAD_INPUT) from None
