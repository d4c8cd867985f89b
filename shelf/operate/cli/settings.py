"""`seal settings`: the meaning and the allowed values of every key of `seal` and `env_service`."""

from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import refusing

app = typer.Typer(add_completion=False)


@app.command()
def settings(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE] [KEY]", help="A key or block, like seal.rollout; a recipe, for its values."),
    ] = None,
) -> None:
    """Explain settings: type, default, bounds and meaning; with a recipe, also its values.

    `seal settings exp/SEAL.yaml seal.reweighting` explains a block of a recipe.
    """
    from shelf.operate.settings_page import explained

    recipes = [name for name in names or () if name.endswith((".yaml", ".yml"))]
    keys = [name for name in names or () if name not in recipes]
    if len(recipes) > 1 or len(keys) > 1:
        raise typer.BadParameter("name at most one recipe and one key")
    with refusing("seal settings"):
        values = None
        if recipes:
            from omegaconf import OmegaConf

            from seal.launch.recipe import read_recipe

            values = OmegaConf.to_container(read_recipe(Path(recipes[0]), []).config)
        typer.echo(explained(keys[0] if keys else "", values))
