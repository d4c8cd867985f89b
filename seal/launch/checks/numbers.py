"""The numbers of a recipe, before anything starts: senseless ones are refused, unusual ones are reported.

`numbers.toml` has a line for each of verl's that decides a run; `seal.settings` reads those of `seal.*` and
`env_service.*`. No number may be NaN or infinite. Pure, like `plan`, which checks numbers against each other.
"""

import math
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from seal.launch.recipe import Recipe
from seal.settings.sentences import shown
from seal.system.errors import LaunchError

KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "number": ("a number", lambda value: True),
    "count": ("a whole number of at least 1", lambda value: isinstance(value, int) and value >= 1),
    "whole": ("a whole number of at least 0", lambda value: isinstance(value, int) and value >= 0),
    "all or count": ("-1 or a whole number of at least 1", lambda value: value == -1 or KINDS["count"][1](value)),
    "all or whole": ("a whole number of at least -1", lambda value: isinstance(value, int) and value >= -1),
    "store": ("a whole number of at least 78643200", lambda value: isinstance(value, int) and value >= 75 << 20),
    "positive": ("above 0", lambda value: value > 0),
    "not negative": ("at least 0", lambda value: value >= 0),
    "share": ("from 0 to 1", lambda value: 0 <= value <= 1),
    "part": ("above 0 and at most 1", lambda value: 0 < value <= 1),
    "below one": ("at least 0 and below 1", lambda value: 0 <= value < 1),
    "above one": ("above 1", lambda value: value > 1),
}
"""The kinds of numbers, in words and as a test."""


class Number(NamedTuple):
    """A line of the table. kind: a key of KINDS. usual: from and to, () if all of its kind are usual."""

    kind: str
    why: str = ""
    usual: tuple[float, float] | tuple[()] = ()


@cache
def table() -> dict[str, Number]:
    """The keys that decide a run."""
    blocks = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {f"{block}.{name}": Number(**line) for block, lines in blocks.items() for name, line in lines.items()}


def numbers(node: Any, key: str = "") -> Iterator[tuple[str, int | float]]:
    """Every number of a resolved configuration with its key, in lists too."""
    if isinstance(node, dict | list):
        for name, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from numbers(value, f"{key}[{name}]" if isinstance(node, list) else f"{key}.{name}".lstrip("."))
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield key, node


def require_sense(recipe: Recipe) -> None:
    """LaunchError with a sentence for each number that makes a run senseless."""
    refused = []
    for key, value in numbers(OmegaConf.to_container(recipe.config)):
        line = table().get(key, Number("number"))
        words, fits = KINDS[line.kind]
        if not math.isfinite(value):
            refused.append(f"{key} is {value}; it must be a finite number.")
        elif not fits(value):
            refused.append(f"{key} is {shown(value)}; it must be {words}: {line.why}.")
    if refused:
        raise LaunchError("\n".join(refused))


def unusual(recipe: Recipe) -> tuple[str, ...]:
    """A sentence for each number that is legal and unusual."""
    found = dict(numbers(OmegaConf.to_container(recipe.config)))
    return tuple(
        f"{key} is {shown(found[key])}, and {' to '.join(f'{end:g}' for end in dict.fromkeys(line.usual))} is usual: "
        f"{line.why}."
        for key, line in table().items()
        if key in found and line.usual and not line.usual[0] <= found[key] <= line.usual[1]
    )
