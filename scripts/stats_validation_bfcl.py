#!/usr/bin/env python3
"""Statistics of BFCL validation logs: ``python scripts/stats_validation_bfcl.py --val-dir experiments/NAME``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import typer

from seal.cli.main import execute
from shelf.statistics.cli.stats import app

if __name__ == "__main__":
    sys.exit(execute(typer.main.get_command(app), sys.argv[1:], "stats_validation_bfcl.py"))
