"""`seal verify`: replay a certificate and say what agrees."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from seal.cli.commands import refusing

if TYPE_CHECKING:
    from shelf.lab.certificate.findings import Findings

app = typer.Typer(add_completion=False)


@app.command("verify")
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate (seal certify RUN).")],
    digest: Annotated[str | None, typer.Option(help="The digest that was published with it.", metavar="HEX")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Default: one per core.", metavar="N")] = None,
    every: Annotated[bool, typer.Option("--all", help="Print every disagreement, not only the first.")] = False,
) -> None:
    """Play every episode of a certificate again and compute every reward, label, weight, cue and figure from that.

    Needs no GPU and no weights. Exits with 0 if nothing disagrees, 1 if something does, 2 for bad input.
    """
    from shelf.lab.certificate.verify import verify as check

    with refusing("seal verify"):
        if not file.is_file():
            raise ValueError(f"{file} does not exist: name a certificate (seal certify RUN).")
        found = check(file, digest, processes)
    _show(found, Console(soft_wrap=True, highlight=False), every)
    raise typer.Exit(int(not found.holds))


def _show(found: "Findings", console: Console, every: bool) -> None:
    console.print(
        f"run {found.run}, certified by SEAL {found.made_by}: {found.steps} steps, {found.trajectories} trajectories, "
        f"{found.validations} of them of validations of {len(found.validated)} tasks",
        markup=False,
    )
    console.print(f"sha256:{found.digest}")
    table = Table(box=None)
    for name, justify in (("compared", "left"), ("agree", "right"), ("of", "right")):
        table.add_column(name, justify=justify)
    for name, count in found.counts.items():
        style = None if count.agree == count.of else "bold red"
        table.add_row(name, f"{count.agree:,}", f"{count.of:,}", style=style)
    console.print(table)
    for what, number in (+found.taken).items():
        console.print(f"taken as written: {number:,} {what}", markup=False)
    if found.holds:
        taken = "What is computed again agrees; the rest is taken as written, see above."
        console.print(taken if +found.taken else "Everything agrees.")
        return
    shown = found.disagreements if every else found.disagreements[:1]
    for number, each in enumerate(shown):
        label = "" if number else "First disagreement: "
        console.print(f"{label}{each}", style="bold red", markup=False)
