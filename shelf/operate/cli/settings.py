"""`seal settings`: what every key of `seal` and `env_service` means and may be."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def settings(
    block: Annotated[str, typer.Argument(metavar="BLOCK", help="A block and those within, like seal.rollout.")] = "",
    out: Annotated[Path | None, typer.Option(help="Write the page to this file instead of printing it.")] = None,
) -> None:
    """Explain the settings of a recipe: type, default, bounds and meaning of every key.

    `seal settings --out docs/settings.md` renews the page of the documentation.
    """
    from shelf.operate.settings_page import settings_page

    try:
        page = settings_page(block)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if out is None:
        typer.echo(page)
    else:
        out.write_text(page, encoding="utf-8")
