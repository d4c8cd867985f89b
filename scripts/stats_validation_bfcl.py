#!/usr/bin/env python3
"""Statistics of BFCL validation logs: ``python scripts/stats_validation_bfcl.py --val-dir experiments/NAME``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from seal.cli.stats import app

if __name__ == "__main__":
    app(prog_name="stats_validation_bfcl.py")
