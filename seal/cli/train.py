"""`seal train RECIPE [key=value ...]`, which is `launcher.py --conf RECIPE -- key=value ...`."""

import errno
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from seal.system.errors import LaunchError

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


class _Console(Console):
    def __exit__(self, *raised: Any) -> None:
        """Write what was printed; once reader or terminal are gone, stay silent: a run has a checkpoint to save."""
        with suppress(SystemExit):  # of a broken pipe: Ctrl-C ends `| tee` too
            try:
                super().__exit__(*raised)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                self.on_broken_pipe()


def console() -> Console:
    """The console of the launcher's commands: lines of 160 columns if the output is not a terminal."""
    return _Console(emoji=False, width=None if sys.stdout.isatty() else 160)


def split(arguments: list[str] | None, conf: Path | None) -> tuple[Path | None, tuple[str, ...]]:
    """The recipe and the overrides of a command line; typer.BadParameter if it names two recipes."""
    rest = sorted(arguments or (), key=lambda argument: "=" in argument)  # the recipe may follow its changes
    if conf is None and rest and "=" not in rest[0]:
        conf = Path(rest.pop(0))
    if more := [argument for argument in rest if "=" not in argument and argument.endswith((".yaml", ".yml"))]:
        raise typer.BadParameter(f"{conf} and {more[0]} are two recipes; name one, and write changes as KEY=VALUE")
    return conf, tuple(rest)


Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE] [KEY=VALUE]...",
        help="A recipe, for instance exp/quickstart.yaml, and settings to change in it (+KEY=VALUE adds a key).",
    ),
]
Conf = Annotated[Path | None, typer.Option(metavar="RECIPE", help="The recipe, as an option.")]


@app.command()
def train(
    arguments: Arguments = None,
    conf: Conf = None,
    with_service: Annotated[
        bool, typer.Option("--with-bfcl", "--with-service", help="Start the environment service too.")
    ] = False,
    resume: Annotated[
        str,
        typer.Option(
            metavar="auto|never|PATH",
            help="Continue from the last checkpoint (auto), or from a global_step_N folder (PATH), or refuse a folder "
            "that holds a run (never).",
        ),
    ] = "auto",
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the resolved configuration and stop.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check whether it can start, and stop.")] = False,
) -> None:
    """Run a recipe: rollouts, diagnosis, updates, checkpoints and validation.

    The recipe is composed and checked, the environment service is started if asked for, and the launch is recorded
    under launcher_record/. Then Ray and verl's trainer are started, their progress is shown, and everything that was
    started is stopped again. Results are written under experiments/NAME/. Ctrl-C, SIGTERM and a closed terminal save a
    checkpoint first; the same command resumes. Exit codes: docs/operate.md#exit-codes.
    """
    recipe, overrides = split(arguments, conf)
    if recipe is None:
        raise typer.BadParameter("name a recipe, for instance exp/quickstart.yaml")
    from seal.launch.run import Request, launch, refuse, rehearse, show

    request = Request(recipe, overrides, with_service, resume)
    act = show if print_config else rehearse if dry_run else launch
    try:
        raise typer.Exit(act(request, console()))
    except LaunchError as error:
        raise typer.Exit(refuse(error, console())) from None
