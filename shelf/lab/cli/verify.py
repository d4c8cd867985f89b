"""`seal verify`: play a run again and say what agrees."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seal.cli.commands import option, refusing
from shelf.list_command import ListCommand

if TYPE_CHECKING:
    from shelf.lab.verify import Findings

SHOWN = 10
TASKS = "Files of the synthesised tasks, if the run does not name them."

app = typer.Typer(add_completion=False)


@app.command("verify", cls=ListCommand)
def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run (experiments/NAME).")],
    tasks: Annotated[list[str] | None, option(TASKS, "FILE...")] = None,
    every: Annotated[bool, typer.Option("--all", help=f"Print every difference, not only the first {SHOWN}.")] = False,
    processes: Annotated[int | None, option("Default: one per core.", "N", least=1)] = None,
) -> None:
    """Play every rollout of a run again, and compute verdicts, labels, advantages, C_t, rho, w and Omega from it.

    Needs no GPU and no weights. Exits with 0 if nothing differs, 1 if something does, 2 for bad input.
    """
    from shelf.lab.verify import run_logs
    from shelf.lab.verify import verify as check
    from shelf.replay.service import service
    from shelf.statistics.launches import read_launches
    from shelf.statistics.tables import console

    out = console(soft_wrap=True, highlight=False)
    with refusing("seal verify"):
        logs = run_logs(run)
        made = {task["id"]: task for log in logs for task in log.tasks(tasks or ())}
        with service(list(made.values()), processes) as url:
            found = check(run, logs, read_launches(logs[0].run), url)
    out.print(*_parts(found, None if every else SHOWN), sep="\n")
    raise typer.Exit(int(bool(found.differs)))


def _parts(found: "Findings", most: int | None) -> list:
    """The findings for people. most: show at most this many differences; None shows all."""
    from shelf.statistics.tables import table

    made = table("Computed again", ["what", "agree", "of"])
    for what, number in found.compared.items():
        made.add_row(what, f"{found.agree[what]:,}", f"{number:,}")
    played = f"{found.steps} training steps and {found.validations} validations, {found.rollouts:,} rollouts"
    parts = [f"Played again: {played}.", *found.notes, made]
    parts += [f"not judged: {number:,} {what}" for what, number in found.unjudged.items()]
    parts += [f"differs: {each}" for each in found.differs[:most]]
    if hidden := len(found.differs[len(found.differs) if most is None else most :]):
        parts.append(f"and {hidden:,} more (--all)")
    return [*parts, *([] if found.differs else ["Nothing that was computed again differs."])]
