"""`seal plan RECIPE [key=value ...]`."""

import typer

from seal.cli.train import Arguments, Conf, console, split

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def plan(arguments: Arguments = None, conf: Conf = None) -> None:
    """Print the rows, batches and token budgets of a recipe's training step, and start nothing."""
    recipe, overrides = split(arguments, conf)
    if recipe is None:
        raise typer.BadParameter("name a recipe, for instance exp/SEAL.yaml")
    from seal.launch.run import Request, show

    raise typer.Exit(show(Request(recipe, overrides), console(), plan=True))
