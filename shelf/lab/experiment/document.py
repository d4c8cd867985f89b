"""A report as sections of text and tables, for the terminal and as a page of Markdown."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from seal.statistics.tables import table


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


def terminal(sections: Sequence[Section]) -> list[RenderableType]:
    """The sections as rich renderables."""
    parts: list[RenderableType] = []
    for section in sections:
        if section.rows:
            parts += [Text(sentence) for sentence in section.text]
            made = table(section.title, section.columns)
            made.columns[0].justify = "left"
            for row in section.rows:
                made.add_row(*map(Text, row))
            parts.append(made)
        else:
            parts += [Text(section.title, style="bold"), *map(_indented, section.text)]
        parts += [_indented(note, "dim") for note in section.notes]
        parts.append(Text())
    return parts


def _indented(sentence: str, style: str = "") -> Padding:
    return Padding(Text(sentence, style=style), (0, 0, 0, 2))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
