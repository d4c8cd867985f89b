"""`seal doctor [RECIPE] [key=value ...]`."""

import os
import warnings
from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import option
from seal.cli.train import Arguments, Conf, console, split

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

Plan = Annotated[bool, option("Print what a run is and, on GPUs, takes: memory, hours and cost.")]
Named = Annotated[str | None, option("The GPU to plan for (default: the one found here, else H100).", "NAME")]
Price = Annotated[float | None, option("Of a GPU hour, for the cost of the planned run.")]


@app.command()
def doctor(
    arguments: Arguments = None, conf: Conf = None, plan: Plan = False, gpu: Named = None, price: Price = None
) -> None:
    """Check whether a recipe can run on this machine, and say how to fix what is missing; or plan its run.

    Starts nothing and changes nothing. Without a recipe it checks exp/SEAL.yaml if torch was built for CUDA, else
    exp/quickstart.yaml. Exit code 0: nothing that is needed is missing, and a planned run fits its GPU.
    """
    recipe, overrides = split(arguments, conf)
    if not plan and gpu is None:
        from shelf.operate.doctor import run

        raise typer.Exit(run(recipe, overrides, console()))
    if recipe is None:
        raise typer.BadParameter("name a recipe, for instance exp/SEAL.yaml")
    raise typer.Exit(_plan(recipe, overrides, gpu, price))


def _plan(recipe: Path, overrides: tuple[str, ...], gpu: str | None, price: float | None) -> int:
    # On import verl names every engine and accelerator that this machine lacks; a plan uses none of them.
    os.environ.setdefault("VERL_LOGGING_LEVEL", "ERROR")
    warnings.filterwarnings("ignore", category=UserWarning, module=r"verl\.")
    from seal.launch.devices import Torch
    from seal.launch.recipe import read_recipe
    from seal.launch.run import refused
    from seal.system.errors import LaunchError
    from shelf.operate.fit import gpu_named, require_fit
    from shelf.operate.plan import RunPlan, model_of, table

    try:
        asked = RunPlan.of(read_recipe(recipe, overrides))
        console().print(table(asked.lines(), f"A training step of {asked.recipe.name}"))
        if asked.recipe.config.trainer.device == "cuda":
            found = Torch.probe().gpus if gpu is None else ()
            name, memory = min(found, key=lambda each: each[1]) if found else (gpu or "H100", None)
            chosen, model = gpu_named(name, memory), model_of(asked.recipe)
            title = f"On {asked.step.devices} x {name}, computed and not measured"
            console().print(table(asked.gpu_lines(chosen, model, price), title))
            require_fit(asked.on(chosen, model), asked.step, model, chosen)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    except LaunchError as error:
        return refused(error, console())
    return 0
