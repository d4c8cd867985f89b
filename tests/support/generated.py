"""Tables in docs/ that are generated, between two comments that name the command."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
END = "<!-- end -->"


def write_table(document: str, command: str, table: Callable[[], str], argv: list[str] | None = None) -> int:
    """Write a table into docs/DOCUMENT; with --check only compare. Returns the exit code: 1 for an outdated table."""
    parser = argparse.ArgumentParser(prog=command)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 when the table is outdated")
    check = parser.parse_args(argv).check
    path, begin = HOME / "docs" / document, f"<!-- begin: {command} -->"
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(begin)
    _, after = rest.split(END)
    made = f"{before}{begin}\n{table()}\n{END}{after}"
    if check:
        return int(made != text)
    path.write_text(made, encoding="utf-8")
    return 0
