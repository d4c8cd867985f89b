"""`seal probe MODEL RECIPE [key=value ...]`."""

from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import option, refusing
from seal.cli.train import console

app = typer.Typer(add_completion=False)


@app.command()
def probe(
    model: Annotated[Path, typer.Argument(help="A folder with config and weights, as `seal export` writes it.")],
    recipe: Annotated[
        Path, typer.Argument(help="Whose training tasks, samples, budgets, cues and weights are probed.")
    ],
    changes: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    documents: Annotated[
        bool, option("Ask instead which tools' documents would have made lost tasks pass, by tool.")
    ] = False,
    out: Annotated[Path | None, option("Findings and logs (default: experiments/probe_MODEL).", "DIR")] = None,
) -> None:
    """Measure, before any training, what a recipe's interface and weights can give a model.

    Prints a table and writes probe.json, or documents.json and documents.png.
    Serves the model, and also the environment unless it is already served.
    """
    from openai import OpenAIError

    from env_service.client import ServiceError
    from seal.launch.recipe import read_recipe
    from seal.system.files import write_json
    from shelf.suites.bar import Bar
    from shelf.suites.cli.shared import default_folder

    with refusing("seal probe", OpenAIError, ServiceError), Bar(console()) as bar:
        asked = read_recipe(recipe, [*(changes or ()), f"actor_rollout_ref.model.path={model.resolve()}"])
        folder = out or default_folder("probe", model.resolve().name)
        folder.mkdir(parents=True, exist_ok=True)
        about = {"model": str(model), "recipe": str(recipe), "changes": changes or []}
        if documents:
            from shelf.lab.probe import documents as entries

            played = entries.play_documents(asked, folder, bar)
            found = entries.report(played["rows"])
            lines = entries.lines(found)
            write_json({**about, **found, **played}, folder / "documents.json")
            entries.draw(found, f"{model.name} on {asked.name}", folder / "documents.png")
            title = f"Which documents {model.name} lacks on the tasks of {asked.name}:"
        else:
            from shelf.lab.probe.measure import findings, play_tasks

            found, lines = findings(asked, bar, *play_tasks(asked, folder, bar))
            write_json({**about, **found}, folder / "probe.json")
            title = f"What cues give {model.name} on the tasks of {asked.name}, in points of its plain pass rate:"
    typer.echo("\n".join((title, *lines)))
