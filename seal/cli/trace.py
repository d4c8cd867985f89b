"""`seal trace`: a run's trajectories for the tools that show traces."""

from pathlib import Path
from typing import Annotated

import typer

from seal.cli.commands import ListCommand, refusing

app = typer.Typer(add_completion=False)


@app.command("trace", cls=ListCommand)
def trace(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run (experiments/NAME).")],
    out: Annotated[Path | None, typer.Option(help="A file to write.", metavar="FILE.jsonl")] = None,
    otlp: Annotated[str | None, typer.Option(help="An OTLP/HTTP receiver to send to.", metavar="URL")] = None,
    header: Annotated[list[str] | None, typer.Option(help="Headers for the receiver.", metavar="NAME=VALUE...")] = None,
    steps: Annotated[list[int] | None, typer.Option(help="Only these steps.", metavar="N...")] = None,
    validations: Annotated[bool, typer.Option(help="With the validated trajectories.")] = True,
) -> None:
    """Export trajectories as OpenTelemetry traces (OTLP/JSON, OpenInference): one trace per episode.

    Its spans are turns with their labels, messages of the policy, and calls with their results (docs/traces.md).
    """
    from seal.trace.export import traces
    from seal.trace.send import send
    from seal.trace.write import write

    with refusing("seal trace"):
        if (out is None) == (otlp is None):
            raise ValueError("Name a file with --out, or a receiver with --otlp, and not both.")
        wrong = next((each for each in header or () if "=" not in each), None)
        if wrong is not None:
            raise ValueError(f"--header {wrong} has no value: write NAME=VALUE.")
        found = traces(run, frozenset(steps or ()), validations=validations)
        headers = dict(each.split("=", 1) for each in header or ())
        count = write(found, out) if out is not None else send(found, otlp, headers)
    typer.echo(f"{count} traces {f'sent to {otlp}' if out is None else f'written to {out}'}")
