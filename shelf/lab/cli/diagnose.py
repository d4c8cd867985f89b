"""`seal diagnose`: validate the diagnosis on injected faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from shelf.authoring.confusion import Confusion, Judged

REQUIRED = 0.97
"""The precision and recall that every label must reach."""

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Validate the labels of turns.")


@app.callback()
def diagnose() -> None:
    """Validate the labels of turns."""


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
    from seal.diagnosis.rules import rules
    from shelf.authoring.confusion import Confusion
    from shelf.authoring.validation import validate as judge

    judged = list(judge(list(load_tasks().values())[::every], seed))
    matrix = Confusion.of(judged)
    labels = matrix.labels([rule.label for rule in rules("paper")])
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
