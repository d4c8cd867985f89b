"""`seal plan RECIPE [key=value ...]`."""

import os
import warnings
from typing import Annotated

import typer

from seal.cli.commands import option
from seal.cli.train import Arguments, Conf, console, split

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

DEFAULT = "H100"
Named = Annotated[str | None, option(f"The GPU to plan for (default: the one found here, else {DEFAULT}).", "NAME")]
Price = Annotated[float | None, option("Of a GPU hour, for the cost of the run.")]


@app.command()
def plan(arguments: Arguments = None, conf: Conf = None, gpu: Named = None, price: Price = None) -> None:
    """Print what a run of a recipe does and, on GPUs, what it needs: memory, hours and cost. Starts nothing.

    Exit code 1 if it does not fit.
    """
    recipe, overrides = split(arguments, conf)
    if recipe is None:
        raise typer.BadParameter("name a recipe, for instance exp/SEAL.yaml")
    # On import, verl warns about every engine and accelerator that this machine lacks; a plan uses none of them.
    os.environ.setdefault("VERL_LOGGING_LEVEL", "ERROR")
    warnings.filterwarnings("ignore", category=UserWarning, module=r"verl\.")
    from seal.launch.checks.devices import Torch
    from seal.launch.checks.numbers import require_sense, unusual
    from seal.launch.console import WARNING, tell
    from seal.launch.recipe import read_recipe
    from seal.launch.run import refuse
    from seal.system.errors import LaunchError
    from shelf.operate.fit import gpu_named, require_fit
    from shelf.operate.plan import RunPlan, model_of, table

    try:
        named = read_recipe(recipe, overrides)
        if (gpu or price) and named.config.trainer.device != "cuda":
            raise ValueError("--gpu and --price are for a recipe that trains on GPUs (trainer.device=cuda).")
        for warning in unusual(named):
            tell(console(), warning, WARNING)
        require_sense(named)
        asked = RunPlan.of(named)
        console().print(table(asked.lines(), f"A training step of {asked.recipe.name}"))
        if asked.recipe.config.trainer.device != "cuda":
            return
        found = Torch.probe().gpus if gpu is None else ()
        name, memory = min(found, key=lambda each: each[1]) if found else (gpu or DEFAULT, None)
        chosen, model = gpu_named(name, memory), model_of(asked.recipe)
        title = f"On {asked.step.devices} x {name}, computed and not measured"
        console().print(table(asked.gpu_lines(chosen, model, price), title))
        require_fit(asked.on(chosen, model), asked.step, model, chosen)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    except LaunchError as error:
        raise typer.Exit(refuse(error, console())) from None
