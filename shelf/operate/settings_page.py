"""The settings of each block, generated from the models: what `seal settings` prints, and a page of `make docs`."""

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import getitem
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le

from seal.settings import BLOCKS
from seal.settings.base import Settings, recipe_defaults
from seal.settings.sentences import is_block, joined, nearest

HEAD = """\
# Settings

Every key of `seal` and `env_service`, with its type, bounds and default. Recipes and overrides (`-- key=value`) name
the keys that differ: [recipes](recipes.md). `--print-config` shows a recipe resolved, with verl's keys.

This page is made from `seal/settings`.
"""

_NAMES = {bool: "true or false", int: "whole number", float: "number", str: "text"}


class Kind(NamedTuple):
    """The values of a key: their type ("whole number"), bounds ("at least 1"; "" if none) and whether null is valid."""

    type: str
    bounds: str = ""
    optional: bool = False


def kind(annotation: Any, metadata: Sequence[Any] = ()) -> Kind:
    """The kind of a field's annotation with its constraints."""
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        metadata = (*metadata, *more)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        members = [kind(member) for member in arguments if member is not NoneType]
        names, bounds = [member.type for member in members], [member.bounds for member in members if member.bounds]
        return Kind(" or ".join(names), "; ".join(bounds), NoneType in arguments)
    if origin is Literal:
        return Kind("text", f"one of {', '.join(arguments)}")
    if origin is tuple:
        item = kind(arguments[0])
        return Kind(f"list of {_plural(item.type)}", _each(item))
    if origin is dict:
        name, value = kind(arguments[0]), kind(arguments[1])
        return Kind(f"mapping of {_plural(name.type)} to {_plural(value.type)}", _each(value))
    if is_block(annotation):
        return Kind("mapping of settings")
    return Kind(_NAMES[annotation], _bounds(metadata))


def _bounds(metadata: Sequence[Any]) -> str:
    found = {type(each): each for each in metadata}
    low, above, high = (found.get(bound) for bound in (Ge, Gt, Le))
    if low and high:
        return f"from {low.ge} to {high.le}"
    lower = [f"at least {low.ge}"] if low else [f"above {above.gt}"] if above else []
    return " and ".join(lower + ([f"at most {high.le}"] if high else []))


def _each(item: Kind) -> str:
    return f"each {item.bounds}" if item.bounds else ""


def _plural(name: str) -> str:
    return name.replace("mapping", "mappings", 1) if name.startswith("mapping") else f"{name}s"


class SettingRow(NamedTuple):
    """The facts about a key; the type includes the bounds."""

    key: str
    type: str
    default: str
    meaning: str


def settings_page() -> str:
    """The page as Markdown: one list per block."""
    lists = []
    for key, block in _blocks():
        rows = [f"- `{row.key}` ({row.type}; {row.default}): {row.meaning}" for row in _rows(key, block)]
        lists.append("\n".join([f"## `{key}`", "", _text(block.__doc__ or ""), "", *rows, ""]))
    return "\n".join([HEAD, *lists])


def explained(name: str, values: Mapping[str, Any] | None = None) -> str:
    """A key, or every key of a block (all for ""): its value in a recipe's blocks, its allowed values, its meaning.

    ValueError for an unknown name.
    """
    rows = [row for key, block in _blocks() for row in _rows(key, block)]
    chosen = [row for row in rows if not name or row.key == name or row.key.startswith(f"{name}.")]
    if not chosen:
        known = [*(row.key for row in rows), *(key for key, _ in _blocks())]
        raise ValueError(f"{name} is not a setting of SEAL{nearest(name, known)}")
    lines = []
    for row in chosen:
        value = "" if values is None else f" = {_value(reduce(getitem, row.key.split('.'), values))}"
        may_be = f"{row.type}, default {row.default}".replace("`", "")
        lines.append(f"{row.key}{value}  ({may_be})\n    {row.meaning}")
    return "\n".join(lines)


def _blocks() -> Iterator[tuple[str, type[Settings]]]:
    """The name of each block and the block, each before its nested blocks."""
    waiting = list(BLOCKS.items())
    while waiting:
        key, block = waiting.pop(0)
        yield key, block
        fields = block.model_fields.items()
        waiting[:0] = [(joined(key, name), each.annotation) for name, each in fields if is_block(each.annotation)]


def _rows(key: str, block: type[Settings]) -> Iterator[SettingRow]:
    """The rows of a block's own keys."""
    defaults = recipe_defaults(block)
    for name, field in block.model_fields.items():
        if not is_block(field.annotation):
            allowed = kind(field.annotation, field.metadata)
            type_name = f"{allowed.type} or null" if allowed.optional else allowed.type
            may_be = f"{type_name}, {allowed.bounds}" if allowed.bounds else type_name
            default = "required" if defaults[name] == "???" else f"`{_value(defaults[name])}`"
            yield SettingRow(joined(key, name), may_be, default, _text(field.description))


def _text(docstring: str) -> str:
    """A docstring on one line, with links to the pages that it names."""
    return re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", " ".join(inspect.cleandoc(docstring).split()))


def _value(value: Any) -> str:
    if value == float("inf"):
        return ".inf"
    return value if isinstance(value, str) else json.dumps(value)
