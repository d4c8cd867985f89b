"""`python -m tests.faults.table` prints every tested fault as a Markdown table, from the tests' `fault` markers."""

import contextlib
import io
from pathlib import Path

import pytest

FIELDS = ("event", "user_sees", "outcome")
HEAD = ("| what happens | what you see | how it goes on | shown by |", "| --- | --- | --- | --- |")


class Collector:
    """A pytest plugin that keeps the rows of the collected tests, one per event, in the order of the tests."""

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


if __name__ == "__main__":
    print(table())
