"""docs/settings.md: a table for each block of settings, made from the models."""

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

from seal.settings import BLOCKS
from seal.settings.base import Settings, recipe_defaults
from seal.settings.sentences import is_block, joined, kind

HEAD = """\
# Settings

Every key of `seal` and `env_service`, with its default. Recipes and overrides (`-- key=value`) name the keys that
differ: [recipes](recipes.md). `--print-config` shows a recipe resolved, with verl's keys. `.inf` is accepted only where
it is the default.

This page is made from `seal/settings` by `seal settings --out docs/settings.md`.
"""


def settings_page(block: str = "") -> str:
    """The page as Markdown, or only the tables of a block and of those within; ValueError for an unknown block."""
    tables = {key: table for name, model in BLOCKS.items() for key, table in _tables(model, name)}
    if not block:
        return "\n".join([HEAD, *tables.values()])
    if block not in tables:
        raise ValueError(f"{block} is not a block; choose from {', '.join(tables)}.")
    return "\n".join(table for key, table in tables.items() if key == block or key.startswith(f"{block}."))


def _tables(block: type[Settings], key: str) -> Iterator[tuple[str, str]]:
    """The name and the table of a block, then those of the blocks within."""
    defaults = recipe_defaults(block)
    rows = []
    for name, field in block.model_fields.items():
        if not is_block(field.annotation):
            allowed = kind(field.annotation, field.metadata)
            type_name = f"{allowed.type} or null" if allowed.optional else allowed.type
            cells = f"`{joined(key, name)}`", type_name, _default(defaults[name]), allowed.bounds
            rows.append(f"| {' | '.join(cells)} | {_text(field.description)} |")
    head = ["", "| key | type | default | bounds | meaning |", "| --- | --- | --- | --- | --- |"] if rows else []
    yield key, "\n".join([f"## `{key}`", "", _text(block.__doc__ or ""), *head, *rows, ""])
    for name, field in block.model_fields.items():
        if is_block(field.annotation):
            yield from _tables(field.annotation, joined(key, name))


def _text(docstring: str) -> str:
    """A docstring as one line, with links to the pages that it names."""
    return re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", " ".join(inspect.cleandoc(docstring).split()))


def _default(value: Any) -> str:
    if value == "???":
        return "required"
    if value == float("inf"):
        return "`.inf`"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"
