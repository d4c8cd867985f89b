"""`seal diagnose`: label the turns of rollouts of other programs, and validate the labels on injected faults."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from seal.cli.commands import option, refusing

if TYPE_CHECKING:
    from shelf.authoring.confusion import Confusion, Judged

REQUIRED = 0.97
"""The precision and recall that every label must reach."""

FILES = "Files, or folders of .json and .jsonl files: BFCL results, OpenAI chats, ATIF, verifiers, NeMo Gym."

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Label the turns of rollouts of other programs.")


@app.command()
def rollouts(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help=FILES)],
    out: Annotated[Path, option("A new folder, which seal stats, report and view read.", "DIR")],
    processes: Annotated[int | None, option("Default: one per core.", "N", least=1)] = None,
) -> None:
    """Label the turns of rollouts that other programs played, and write them as a run of one validation.

    Rollouts of the benchmark's tasks are played again, so that their labels are exact. Exits with 0 if every rollout
    was judged, 1 if lines cannot be used or played again, 2 for bad input.
    """
    from seal.records.folder import RunFolder
    from seal.system.files import write_jsonl
    from shelf.lab.foreign.formats import read_files
    from shelf.lab.foreign.judged import judged, sentences
    from shelf.lab.service import service
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
            found = list(judged(read, url))
        write_jsonl((each.record.line() for each in found), log)
        console().print(*summarise_run(out, ()).tables, sep="\n")
        for sentence in (*sentences(found), *(f"Left out: {line}" for line in bad)):
            console().print(sentence, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(int(bool(bad) or any(each.record.infra for each in found)))


@app.command()
def validate(
    every: Annotated[int, typer.Option(min=1, help="Take only every N-th of the 800 tasks.", metavar="N")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the draws of faults.")] = 0,
) -> None:
    """Inject single faults into the reference runs and compare each label with the one that it must be.

    Exits with 0 if every label has a precision and a recall of at least .97, 1 otherwise.

    Takes about two minutes of one core for all tasks.
    """
    from env_service.environments.bfcl.catalog import load_tasks
    from seal.diagnosis.rules import taxonomy_of
    from shelf.authoring.confusion import Confusion
    from shelf.authoring.validation import validate as judge

    tasks, shown = list(load_tasks().values())[::every], Console(stderr=True)
    shown.print(f"playing {len(tasks)} tasks with up to 18 faults")
    judged = list(judge(track(tasks, "tasks", console=shown, transient=True), seed))
    matrix = Confusion.of(judged)
    labels = matrix.labels([rule.label for rule in taxonomy_of("paper").rules])
    _show_matrix(matrix, labels, judged, Console(width=180))
    low = [label for label in labels if min(matrix.precision(label), matrix.recall(label)) < REQUIRED]
    raise typer.Exit(int(bool(low)))


def _show_matrix(matrix: Confusion, labels: Sequence[str], judged: Sequence[Judged], console: Console) -> None:
    columns = [str(number) for number in range(1, len(labels) + 1)]
    table = Table("", "must be", *columns, "faults", "precision", "recall")
    for number, label in zip(columns, labels, strict=True):
        counts = [matrix.counts[label, found] for found in labels]
        shares = (f"{matrix.precision(label):.3f}", f"{matrix.recall(label):.3f}")
        table.add_row(number, label, *(str(count or ".") for count in counts), str(sum(counts)), *shares)
    console.print(table)
    kinds = {turn.kind: 0 for turn in judged}
    for turn in judged:
        kinds[turn.kind] += turn.expected != turn.found
    console.print(f"{len(judged)} faults of {len(kinds)} kinds, {sum(kinds.values())} disagreements")
    for kind, count in kinds.items():
        if count:
            console.print(f"  {kind}: {count}", markup=False)
