"""`seal experiment`: plan, run and judge a matrix of runs."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import option, refusing
from seal.cli.train import console as launch_console
from seal.system.paths import HOME

app = typer.Typer(
    help="Plan, run and judge a matrix of runs: arms x seeds over a recipe (shelf/lab/README.md).",
    no_args_is_help=True,
    add_completion=False,
)


def complete_experiment(incomplete: str) -> list[str]:
    """The experiments in exp/experiments whose path begins with what was typed."""
    names = (str(path.relative_to(HOME)) for path in sorted((HOME / "exp" / "experiments").glob("*.yaml")))
    return [name for name in names if name.startswith(incomplete)]


File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="An experiment, for instance exp/experiments/paper_table3.yaml, or the folder of its results.",
        autocompletion=complete_experiment,
    ),
]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, metavar="N", help="Runs at a time.")]


@app.command()
def plan(
    file: File,
    jobs: Jobs = 1,
    commands: Annotated[
        bool, typer.Option("--commands", help="Register, and print each missing run as scripts/slurm.sh takes it.")
    ] = False,
) -> None:
    """Check every arm and print runs, hours, disk and power; start nothing.

    Times and power come from finished runs; before the first one finishes, times come from `cost` in the file.
    """

    from shelf.lab.experiment.arms import composed_arms, require_unchanged
    from shelf.lab.experiment.matrix import Experiment
    from shelf.lab.experiment.plan import plan_experiment, plan_parts
    from shelf.lab.experiment.runner import prepare
    from shelf.statistics.tables import console

    with refusing("seal experiment plan"):
        experiment = Experiment.read(file)
        arms = composed_arms(experiment)
        require_unchanged(experiment, arms)
        if commands:
            for words in prepare(experiment, arms):
                typer.echo(shlex.join(words))
            return
        console().print(*plan_parts(experiment, plan_experiment(experiment, arms, jobs)), sep="\n")


@app.command()
def run(
    file: File,
    jobs: Jobs = 1,
    devices: Annotated[
        str, option("The GPUs that the runs share, for instance 0,1,2,3; needed for several at a time.", "LIST")
    ] = "",
    only: Annotated[str, option("Run only these arms, for instance vanilla,seal.", "LIST")] = "",
) -> None:
    """Run what is missing in the matrix, each run as `seal train --with-service`.

    The first run registers the file.
    Ctrl-C saves the runs in progress; the same command continues after any interruption.
    When a run has finished, its results are kept and its checkpoints removed (`keep` in the file).
    Exits with 0 if every requested run has finished, 3 if some failed, 2 if the experiment cannot start.
    """
    from shelf.lab.experiment.arms import composed_arms
    from shelf.lab.experiment.matrix import Experiment
    from shelf.lab.experiment.runner import SessionOptions, run_experiment

    out = launch_console()
    with refusing("seal experiment run"):
        experiment = Experiment.read(file)
        arms = composed_arms(experiment)
        options = SessionOptions(jobs=jobs, devices=_listed(devices), only=_listed(only))
        session = run_experiment(
            experiment, arms, options, lambda text: out.print(text, highlight=False, soft_wrap=True)
        )
    if session.code == 0:
        which = "every run of these arms" if only else "every run"
        out.print(
            f"{which} has finished: seal experiment report {shlex.quote(str(file))}", highlight=False, soft_wrap=True
        )
    raise typer.Exit(session.code)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


@app.command()
def status(file: File) -> None:
    """Print how far each run is, and why runs failed."""
    from shelf.lab.experiment.collect import collect_finished
    from shelf.lab.experiment.matrix import Experiment
    from shelf.lab.experiment.plan import status_parts
    from shelf.statistics.tables import console

    with refusing("seal experiment status"):
        experiment = Experiment.read(file)
        shown = console()
        collect_finished(experiment)
        shown.print(*status_parts(experiment), sep="\n", highlight=False)


@app.command()
def report(
    file: File,
    out: Annotated[Path | None, option("The page to write; picture and figures stand beside it.", "PAGE.md")] = None,
) -> None:
    """Print the effects of the arms, and write them as a page with a picture.

    Effects are paired by seed and task, with 95 % intervals over seeds and scenarios and Holm-corrected p-values.
    The report names comparisons that cannot be made yet, and says if the matrix is unfinished.
    """
    from rich.markdown import Markdown

    from shelf.lab.experiment.collect import collect_finished
    from shelf.lab.experiment.matrix import Experiment
    from shelf.lab.experiment.report import analyse, write_report
    from shelf.statistics.tables import console

    with refusing("seal experiment report"):
        experiment = Experiment.read(file)
        shown = console()
        collect_finished(experiment)
        found = analyse(experiment)
        page, picture = write_report(found, out)
        shown.print(Markdown(page.read_text(encoding="utf-8")))
        shown.print(f"wrote {page} and {picture}", highlight=False, soft_wrap=True)
