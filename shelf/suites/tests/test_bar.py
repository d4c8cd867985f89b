"""Work that nobody watches in a terminal says how far it is."""

import io

import pytest
from rich.console import Console

from shelf.suites.bar import Bar


@pytest.mark.parametrize(("kept", "lines"), [(0, 10), (95, 2), (100, 1)])
def test_a_line_per_tenth_is_written_where_there_is_no_terminal(kept, lines):
    console = Console(file=io.StringIO())
    with Bar(console, "played") as bar:
        task = bar.add_task("bfcl", total=100)
        bar.update(task, completed=kept)
        for passed in range(100 - kept):
            bar.update(task, advance=1, description=f"bfcl: {passed + 1} passed")
        bar.update(bar.add_task("of unknown size", total=None), advance=1)
    said = console.file.getvalue().split("\n")[:-1]
    assert len(said) == lines and said[-1].endswith(
        "passed, 100 of 100 played" if kept < 100 else "bfcl, 100 of 100 played"
    )


def test_a_terminal_shows_the_bar_alone():
    console = Console(file=io.StringIO(), force_terminal=True)
    with Bar(console) as bar:
        bar.update(bar.add_task("bfcl", total=2), advance=2)
    assert "2 of 2" not in console.file.getvalue()
