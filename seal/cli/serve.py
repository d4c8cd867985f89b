"""`seal serve`: the environment service, with the settings of its environment variables as options."""

from collections.abc import Iterator
from inspect import Parameter, Signature
from typing import Annotated, Any

import typer

from env_service import variable
from env_service.settings import ServerSettings

app = typer.Typer(add_completion=False)


def _options() -> Iterator[Parameter]:
    """An option for each setting but the token and the owner."""
    for name, field in ServerSettings.model_fields.items():
        if name not in ("token", "owner"):
            default = f", default {field.default}" if field.default not in ("", {}, ()) else ""
            text = f"{field.description} ({variable(name)}{default})"
            kind = field.annotation if field.annotation in (int, float) else str  # a list is written as one text
            annotation = Annotated[kind | None, typer.Option(help=text, show_default=False)]
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def serve(**options: Any) -> None:
    """Start the environment service and serve until interrupted.

    An option takes precedence over the environment variable beside it.
    The token is only read from BFCL_TOKEN, because other users of the machine can see a command line.
    Exit code 1: the service cannot start; one sentence on stderr says why.
    """
    from env_service.__main__ import main

    raise typer.Exit(main(**{name: value for name, value in options.items() if value is not None}))


serve.__signature__ = Signature([*_options()])
app.command("serve")(serve)
