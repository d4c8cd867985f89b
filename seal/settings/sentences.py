"""Settings in words: what a key may be, and the one sentence that refuses a wrong value."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel

_NAMES = {bool: "true or false", int: "whole number", float: "number", str: "text"}


class SettingsError(ValueError):
    """A setting that cannot be used; `key` is its name in the recipe, the text is one sentence."""

    def __init__(self, key: str, sentence: str):
        super().__init__(sentence)
        self.key = key


class Kind(NamedTuple):
    """What a value may be: its type ("whole number"), its bounds ("at least 1"; "" if none) and whether null is one."""

    type: str
    bounds: str = ""
    optional: bool = False

    @property
    def sentence(self) -> str:
        """The end of "it must be ..."."""
        text = f"{'' if self.type == _NAMES[bool] else 'a '}{self.type}"
        if self.bounds.startswith("one of"):
            text = self.bounds
        elif self.bounds.startswith("at"):
            text += f" of {self.bounds}"
        elif self.bounds:
            text += f"{', ' if self.bounds.startswith('each') else ' '}{self.bounds}"
        return f"{text}, or null" if self.optional else text


def kind(annotation: Any, metadata: Sequence[Any] = ()) -> Kind:
    """The kind of a field's annotation with its constraints."""
    annotation, metadata = _bare(annotation, metadata)
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


def is_block(annotation: Any) -> bool:
    """Whether an annotation is a block of settings."""
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

    A key that is unknown comes before any other, because a required one may be missing for its misspelling.
    """
    error = min(errors, key=lambda each: each["type"] != "extra_forbidden")
    key, expected = prefix, (block, ())
    for step in error["loc"]:
        below = _below(*expected, step)
        if below is None:
            break
        key, expected = f"{key}[{step}]" if isinstance(step, int) else joined(key, step), below
    if error["type"] == "extra_forbidden":
        unknown, siblings = joined(key, str(error["loc"][-1])), ", ".join(_bare(*expected)[0].model_fields)
        known = [*keys(_bare(*expected)[0], key), *keys(block, prefix)]
        hint = nearest(unknown, known, f"; {key or 'the block'} has {siblings}.")
        return SettingsError(unknown, f"{unknown} is not a setting{hint}")
    if error["type"] == "missing":
        return SettingsError(key, f"{key} has no value; it must be {kind(*expected).sentence}.")
    if error["type"] == "value_error":
        reason = str(error["ctx"]["error"]).rstrip(".")
        return SettingsError(key, f"{key}: {reason}." if key else f"{reason}.")
    needed = kind(*expected).sentence
    if error["type"] == "finite_number":
        needed = needed.replace("number", "finite number", 1)
    return SettingsError(key, f"{key or 'the block'} is {shown(error['input'])}; it must be {needed}.")


def shown(value: Any) -> str:
    """A value as a recipe writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(list(value) if isinstance(value, tuple) else value)


def _below(annotation: Any, metadata: Sequence[Any], step: int | str) -> tuple[Any, Sequence[Any]] | None:
    """What stands one step further down, None when the step names a part of a union."""
    annotation, _ = _bare(annotation, metadata)
    if get_origin(annotation) in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not NoneType]
        return _below(members[0], (), step) if len(members) == 1 else None
    if is_block(annotation):
        field = annotation.model_fields.get(step)
        return None if field is None else (field.annotation, field.metadata)
    if get_origin(annotation) is tuple and isinstance(step, int):
        return get_args(annotation)[0], ()
    if get_origin(annotation) is dict:
        return get_args(annotation)[1], ()
    return None


def _bare(annotation: Any, metadata: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        metadata = (*metadata, *more)
    return annotation, metadata


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
