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
    from seal.launch.plan import step_plan
    from seal.launch.recipe import read_recipe
    from seal.launch.run import refused
    from seal.system.errors import LaunchError
    from shelf.operate.plan import table

    try:
        asked = read_recipe(recipe, overrides)
        console().print(table(step_plan(asked.config), asked.name))
    except LaunchError as error:
        raise typer.Exit(refused(error, console())) from None
