"""Options of the shelf's commands with several values."""

from typing import Any

from typer.core import TyperCommand


class ListCommand(TyperCommand):
    """A command whose list options take several values: ``--categories base miss_func``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each of its values."""
        lists = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        spread: list[str] = []
        current = None
        for argument in args:
            if argument.startswith("--"):
                current = option if (option := argument.partition("=")[0]) in lists else None
            elif current and spread[-1] != current:
                spread.append(current)
            spread.append(argument)
        return super().parse_args(ctx, spread)
