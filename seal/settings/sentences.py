"""Settings in words: the names of keys, and the one sentence that refuses a wrong value."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel


class SettingsError(ValueError):
    """A setting that cannot be used; `key` is its name in the recipe, the text is one sentence."""

    def __init__(self, key: str, sentence: str):
        super().__init__(sentence)
        self.key = key


def is_block(annotation: Any) -> bool:
    """Return whether an annotation is a block of settings."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def keys(block: type[BaseModel], prefix: str) -> Iterator[str]:
    """The full name of every block and key below `prefix`."""
    for name, field in block.model_fields.items():
        key = joined(prefix, name)
        yield key
        if is_block(field.annotation):
            yield from keys(field.annotation, key)


def joined(prefix: str, name: str) -> str:
    """The name of a key within a block."""
    return f"{prefix}.{name}" if prefix else name


def nearest(key: str, known: Iterable[str], otherwise: str = ".") -> str:
    """The end of a sentence about an unknown key: "; did you mean X?", or `otherwise` when nothing is near."""
    near = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else otherwise


def refusal(block: type[BaseModel], prefix: str, errors: Sequence[Mapping[str, Any]]) -> SettingsError:
    """The sentence for pydantic's errors about a block that the recipe calls `prefix`: it names the first.

    An unknown key comes first, because it may be the misspelling of a required key, which is then missing too.
    """
    error = min(errors, key=lambda each: each["type"] != "extra_forbidden")
    key, expected = prefix, block
    for step in error["loc"]:
        below = _below(expected, step)
        if below is None:
            break
        key, expected = f"{key}[{step}]" if isinstance(step, int) else joined(key, step), below
    if error["type"] == "extra_forbidden":
        unknown, known = joined(key, str(error["loc"][-1])), _bare(expected)
        others = f"; {key or 'the block'} has {', '.join(known.model_fields)}."
        hint = nearest(unknown, [*keys(known, key), *keys(block, prefix)], others)
        return SettingsError(unknown, f"{unknown} is not a setting{hint}")
    if error["type"] == "missing":
        return SettingsError(key, f"{key} has no value: set it.")
    if error["type"] == "value_error":
        reason = str(error["ctx"]["error"]).rstrip(".")
        return SettingsError(key, f"{key}: {reason}." if key else f"{reason}.")
    needed = error["msg"].removeprefix("Input should ").partition(" or instance of ")[0]
    needed = needed.replace("valid tuple", "list").replace("valid dictionary", "mapping")
    return SettingsError(key, f"{key or 'the block'} is {shown(error['input'])}; it must {needed}.")


def shown(value: Any) -> str:
    """A value as a recipe writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(list(value) if isinstance(value, tuple) else value)


def _below(annotation: Any, step: int | str) -> Any:
    """Return the annotation one step further down; None if the step names a part of a union."""
    annotation = _bare(annotation)
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        return _below(members[0], step) if len(members) == 1 else None
    if is_block(annotation):
        field = annotation.model_fields.get(step)
        return None if field is None else field.annotation
    if get_origin(annotation) is tuple and isinstance(step, int):
        return get_args(annotation)[0]
    if get_origin(annotation) is dict:
        return get_args(annotation)[1]
    return None


def _bare(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation
