"""Print and draw what a run has shown: ``python -m seal.report experiments/NAME``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from seal.evaluation.tables import console
from seal.report.summary import summarise


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0, or 2 for a folder without a run."""
    parser = argparse.ArgumentParser(prog="python -m seal.report", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder (experiments/NAME)")
    options = parser.parse_args(arguments)
    try:
        parts = summarise(options.run)
    except (ValueError, OSError) as error:
        Console(stderr=True, soft_wrap=True).print(f"seal.report: {error}", markup=False)
        return 2
    out = console()
    for part in parts:
        out.print(part)
    return 0


if __name__ == "__main__":
    sys.exit(main())
