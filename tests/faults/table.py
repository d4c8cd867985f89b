"""`python -m tests.faults.table [--check]`: the table of docs/reliability.md from the tests' `fault` markers."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
DOCUMENT = HOME / "docs" / "reliability.md"
BEGIN = "<!-- begin: python -m tests.faults.table -->"
END = "<!-- end -->"
FIELDS = ("event", "user_sees", "outcome")
HEAD = ("| what happens | what you see | how it goes on | shown by |", "| --- | --- | --- | --- |")


class Collector:
    """A pytest plugin that keeps the rows of the collected tests, one an event, in the order of the tests."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, ...], str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for marker in item.iter_markers("fault"):
                row = tuple(marker.kwargs[field] for field in FIELDS)
                self.rows.setdefault(row, f"`{item.path.stem}`")


def table() -> str:
    """The table as Markdown; RuntimeError when the tests cannot be collected."""
    collector = Collector()
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", str(Path(__file__).parent)]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(options, plugins=[collector])
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"the tests of faults cannot be collected: {said.getvalue()}")
    rows = [f"| {' | '.join(row)} | {test} |" for row, test in sorted(collector.rows.items(), key=lambda row: row[1])]
    return "\n".join([*HEAD, *rows])


def main(argv: list[str] | None = None) -> int:
    """Write the table into the document, or with --check say whether it is current; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 when the table is old")
    check = parser.parse_args(argv).check
    document = DOCUMENT.read_text(encoding="utf-8")
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    made = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if check:
        return int(made != document)
    DOCUMENT.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
