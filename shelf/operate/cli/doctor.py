"""`seal doctor [RECIPE] [key=value ...]`."""

import typer

from seal.cli.train import Arguments, Conf, console, split

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def doctor(arguments: Arguments = None, conf: Conf = None) -> None:
    """Check whether a recipe can run on this machine, and say how to fix what is missing.

    Starts nothing and changes nothing. Without a recipe, it checks exp/SEAL.yaml if torch was built for CUDA, else
    exp/quickstart.yaml. Exit code 0: nothing that is needed is missing.
    """
    from shelf.operate.doctor import run

    raise typer.Exit(run(*split(arguments, conf), console()))
