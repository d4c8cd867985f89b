"""`seal rescore`: judge stored episodes again."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import option, refusing
from seal.settings.reward import Cut, Mode
from shelf.list_command import ListCommand

SHOWN = 20
EVERY = 1_000_000
LOG = "A run, or one <step>.jsonl of its validations, of its training, or of an evaluation."
TASKS = "Files of the synthesised tasks, if the run does not name them."

app = typer.Typer(add_completion=False)
_read = partial(option, panel="What to read")
_judge = partial(option, panel="How to judge (default: as the run does)")


@app.command("rescore", cls=ListCommand)
def rescore(
    log: Annotated[Path, typer.Argument(metavar="LOG", help=LOG)],
    step: Annotated[int | None, _read("Of a run: only this step (default: all).", "N")] = None,
    training: Annotated[bool, _read("Of a run: its training trajectories, not its validations.")] = False,
    tasks: Annotated[list[str] | None, _read(TASKS, "FILE...")] = None,
    taxonomy: Annotated[str | None, _judge("The set of labels.")] = None,
    reward_mode: Annotated[Mode | None, _judge("The terminal reward.")] = None,
    reward_cut: Annotated[Cut | None, _judge("The reward of a rollout that a budget cut.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every changed verdict.")] = False,
    json: Annotated[Path | None, option("Every change as JSON.", "FILE")] = None,
    atif: Annotated[Path | None, option("The rollouts that were judged again, as ATIF v1.8 files.", "DIR")] = None,
    processes: Annotated[int | None, option("Default: one per core.", "N", least=1)] = None,
) -> None:
    """Play stored episodes again and judge them by the current checker, taxonomy and reward.

    Prints what changed and why, paired by task. Exits with 1 if rollouts cannot be played again, 2 for bad input.
    """
    from seal.system.files import write_json
    from shelf.lab.foreign.atif import write_atif
    from shelf.lab.rescore import rescore_log, tables, to_json
    from shelf.replay.service import service
    from shelf.replay.stored import find_logs
    from shelf.statistics.tables import console

    given = {"mode": reward_mode, "cut": reward_cut}
    reward = {name: value for name, value in given.items() if value is not None}
    out, findings = console(), []
    with refusing("seal rescore"):
        logs = find_logs(log, step, training)
        terms = [each.terms(taxonomy, reward) for each in logs]
        made = {task["id"]: task for each in logs for task in each.tasks(tasks or ())}
        with service(list(made.values()), processes) as url:
            findings = [rescore_log(each, judged, url) for each, judged in zip(logs, terms, strict=True)]
        for found in findings:
            out.print(*tables(found, EVERY if every else SHOWN), sep="\n", highlight=False)
            if atif:
                write_atif(found, atif)
                out.print(f"wrote {len(found.replayed)} trajectories to {atif}", highlight=False)
        if json:
            write_json([to_json(found) for found in findings], json)
            out.print(f"wrote {json}", highlight=False)
    if any(found.unplayable for found in findings):
        raise typer.Exit(1)
