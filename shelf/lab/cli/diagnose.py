"""`seal diagnose`: label the turns of rollouts of other programs."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import option, refusing

FILES = "Files or folders: BFCL results, chats, ATIF, verifiers, NeMo Gym, verl's dumps, tau-bench, tau2-bench."

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()  # with a callback, typer keeps the name of a single command
def diagnose() -> None:
    """Label the turns of rollouts of other programs."""


@app.command()
def rollouts(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=FILES)],
    out: Annotated[Path, option("A new folder, which seal stats, report and view read.", "DIR")],
    processes: Annotated[int | None, option("Default: one per core.", "N", least=1)] = None,
) -> None:
    """Label the turns of rollouts that other programs played, and write them as a run of one validation.

    Rollouts of the benchmark's tasks are played again, so their labels are exact.
    Exits with 0 if every rollout was judged, 1 if lines cannot be used or played again, 2 for bad input.
    """
    from seal.records.folder import RunFolder
    from seal.system.files import write_jsonl
    from seal.system.text import one_line
    from shelf.lab.foreign.files import left_out, read_files
    from shelf.lab.foreign.judged import judge, sentences
    from shelf.replay.service import service
    from shelf.statistics.runs import summarise_run
    from shelf.statistics.tables import console

    with refusing("seal diagnose rollouts"):
        log = RunFolder(out).validations / "0.jsonl"
        if log.exists():
            raise ValueError(f"{log} exists: name a new folder.")
        read, bad = read_files(files)
        if not read:
            raise ValueError(f"no rollout can be used: {bad[0] if bad else 'the files are empty'}")
        with service((), processes) if any(each.replays for each in read) else nullcontext("") as url:
            found = list(judge(read, url))
        write_jsonl((each.record.line() for each in found), log)
        console().print(*summarise_run(out, ()).tables, sep="\n")
        for sentence in (*sentences(found), *left_out(bad)):
            console().print(one_line(sentence), highlight=False, soft_wrap=True)
    raise typer.Exit(int(bool(bad) or any(each.record.infra for each in found)))
