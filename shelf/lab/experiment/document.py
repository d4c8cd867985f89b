"""A report as sections of text and tables, written as a page of Markdown."""

from collections.abc import Sequence
from typing import NamedTuple


class Section(NamedTuple):
    """A heading with sentences, then a table (rows below columns; the first column is text), then notes."""

    title: str
    text: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


def markdown(title: str, sections: Sequence[Section], picture: str | None = None) -> str:
    """The sections as a page; picture: a path from the page to an image."""
    lines = [f"# {title}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""]
        lines += [line for sentence in section.text for line in (_escaped(sentence), "")]
        if section.rows:
            lines += [_row(section.columns), _row(["---", *["---:"] * (len(section.columns) - 1)])]
            lines += [*map(_row, section.rows), ""]
        lines += [f"- {_escaped(note)}" for note in section.notes] + ([""] if section.notes else [])
    if picture:
        lines += [f"![{title}]({picture})", ""]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
