"""``python -m seal.diagnosis relabel LOG.jsonl``: redo a log's diagnosis and print what changes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from seal.diagnosis.relabel import Relabelled, relabel_log


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 when nothing changes, 1 when labels change, 2 when the log cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m seal.diagnosis", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    relabel = commands.add_parser("relabel", help="diagnose the evidence of a log afresh")
    relabel.add_argument("log", type=Path, help="JSONL with evidence and labels, one episode a line")
    relabel.add_argument("--taxonomy", default="paper", help="paper (default), release or one of your own")
    arguments = parser.parse_args(argv)
    try:
        with arguments.log.open(encoding="utf-8") as lines:
            found = relabel_log(lines, arguments.taxonomy)
    except (OSError, ValueError) as error:
        Console(stderr=True).print(f"{arguments.log}: {error}", markup=False, soft_wrap=True)
        return 2
    _show(found, Console())
    return 1 if found.changes else 0


def _show(found: Relabelled, console: Console) -> None:
    if found.changes:
        table = Table("line", "task", "turn", "was", "is", "because")
        for change in found.changes:
            place = (str(change.line), change.task_id, str(change.turn))
            table.add_row(*place, change.before or "-", change.after or "-", change.reason)
        console.print(table)
    counts = ", ".join(f"{label} {count}" for label, count in sorted(found.counts.items()))
    console.print(
        f"{found.trajectories} episodes, {found.turns} turns, {len(found.changes)} labels change", soft_wrap=True
    )
    console.print(counts, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
