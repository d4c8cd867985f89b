"""Settings from a recipe: a frozen dataclass out of a mapping, with one clear sentence when it is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def read_settings(cls: type[T], config: Mapping[str, Any], where: str) -> T:
    """Build ``cls`` from ``config``; ``where`` is the recipe's name of the section, for messages.

    Lists become tuples, whole numbers become floats where the default is one, nested
    settings dataclasses are read the same way. Raises ValueError for unknown keys and
    wrong types; ``cls.__post_init__`` checks values.
    """
    if not isinstance(config, Mapping):
        raise ValueError(f"{where}: expected a mapping of settings, got {config!r}")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for key in config:
        if key not in fields:
            raise ValueError(f"{where}: unknown setting {key!r}; it has {', '.join(fields)}")
    defaults = cls()
    values = {key: _value(getattr(defaults, key), value, f"{where}.{key}") for key, value in config.items()}
    return cls(**values)


def _value(default: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(default):
        return read_settings(type(default), value, where)
    if isinstance(default, bool):
        wanted, right = "true or false", isinstance(value, bool)
    elif isinstance(default, int):
        wanted, right = "a whole number", isinstance(value, int) and not isinstance(value, bool)
    elif isinstance(default, float):
        wanted, right = "a number", isinstance(value, int | float) and not isinstance(value, bool)
        value = float(value) if right else value
    elif isinstance(default, str):
        wanted, right = "a text", isinstance(value, str)
    elif isinstance(default, tuple):
        listed = isinstance(value, Sequence) and not isinstance(value, str)
        wanted, right = "a list of texts", listed and all(isinstance(item, str) for item in value)
        value = tuple(value) if right else value
    else:
        wanted, right = "a mapping", isinstance(value, Mapping)
        value = dict(value) if right else value
    if not right:
        raise ValueError(f"{where}: expected {wanted}, got {value!r}")
    return value
