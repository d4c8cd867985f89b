"""`seal serve`: the environment service, with the settings of its environment variables as options."""

from typing import Annotated

import typer

from env_service import variable
from env_service.settings import ServerSettings

app = typer.Typer(add_completion=False)


def _option(name: str) -> typer.models.OptionInfo:
    field = ServerSettings.model_fields[name]
    default = f", default {field.default}" if field.default not in ("", {}, ()) else ""
    return typer.Option(help=f"{field.description} ({variable(name)}{default})", show_default=False)


@app.command("serve")
def serve(
    context: typer.Context,
    host: Annotated[str | None, _option("host")] = None,
    port: Annotated[int | None, _option("port")] = None,
    workers: Annotated[int | None, _option("workers")] = None,
    call_seconds: Annotated[float | None, _option("call_seconds")] = None,
    request_seconds: Annotated[float | None, _option("request_seconds")] = None,
    memory_mb: Annotated[int | None, _option("memory_mb")] = None,
    idle_seconds: Annotated[float | None, _option("idle_seconds")] = None,
    max_episodes: Annotated[int | None, _option("max_episodes")] = None,
    max_body_bytes: Annotated[int | None, _option("max_body_bytes")] = None,
    delay_seconds: Annotated[float | None, _option("delay_seconds")] = None,
    environments: Annotated[str | None, _option("environments")] = None,
    task_files: Annotated[str | None, _option("task_files")] = None,
) -> None:
    """Start the environment service and serve until interrupted.

    An option takes precedence over the environment variable beside it. The token is only
    read from BFCL_TOKEN, because other users of the machine can see a command line.
    Exit code 1: the service cannot start; one sentence on stderr says why.
    """
    from env_service.__main__ import main

    options = {name: value for name, value in context.params.items() if value is not None}
    raise typer.Exit(main(**options))


if __name__ == "__main__":
    app()
