"""`seal export`: a checkpoint as a folder for others."""

import logging
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from seal.cli.commands import option, refusing
from shelf.suites.folder import require_empty

RUN = "A run (experiments/NAME), RUN/STEP, or RUN/checkpoints/global_step_STEP."

app = typer.Typer(add_completion=False)


@app.command("export")
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN)],
    out: Annotated[Path, option("The folder to write, which must not hold anything.", "DIR")],
    step: Annotated[int | None, option("This step (default: the best validated one, else the last).", "N")] = None,
    merge_adapter: Annotated[bool, typer.Option(help="Of a LoRA run: a whole model instead of an adapter.")] = False,
    license: Annotated[str | None, option("Of the base model (default: what its own card states).", "ID")] = None,
    push: Annotated[str | None, option("Upload it to the Hugging Face hub, private.", "USER/NAME")] = None,
    public: Annotated[bool, typer.Option("--public", help="With --push: for everybody to see.")] = False,
) -> None:
    """Write a checkpoint as a folder that transformers, PEFT and vLLM load, with a model card and the interface.

    Exits with 0, or with 2 if the run, its checkpoint or the hub does not allow it.
    """
    with refusing("seal export"):
        from shelf.handover.source import find_source

        if public and push is None:
            raise ValueError("--public belongs to --push: name what to upload as with --push USER/NAME.")
        if push is not None:
            from shelf.handover.hub import require_push

            require_push(push)
        source = find_source(run, step)
        require_empty(out)
        # Import torch and transformers, which takes seconds, only if the export is possible.
        from shelf.handover.export import export as write

        logging.getLogger("transformers").setLevel(logging.ERROR)
        console = Console(emoji=False, soft_wrap=True, highlight=False)
        console.print(f"step {source.step} of {source.name}: {source.why}", markup=False)
        made = write(source, out, license, merge_adapter)
        console.print(f"wrote {out}: {made.kind}, tokenizer, README.md (model card)", markup=False)
        if made.omega:
            console.print(f"interface.json: {', '.join(made.omega.cues) or 'no cue is on'}", markup=False)
        if made.licence is None:
            console.print("The base model's licence is not known: state it with --license before you share this.")
        if push is not None:
            from shelf.handover.hub import push as upload

            console.print(f"uploaded to {upload(out, push, public=public)}", markup=False)
