"""A call path: what a task asks for and how it is done, before a writer puts it into words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from seal.records.benchmark import Category

Style = Literal["name", "text", "plain", "amount", "list"]
"""The form of a value: a name or an id with or without quotes, a text in quotes, a text as it is, a number, several."""

Known = Literal["", "before", "new"]
"""The source of a reference to a thing: an earlier clause about it, or a result in which only its id was seen."""

Asking = Literal["everything", "without_tool", "without_value", "value"]
"""The values in a message: all that are needed; all, while the tool is withheld; all but one value; only that value."""


@dataclass(frozen=True)
class Slot:
    """A value that a phrase mentions. thing: the kind of thing, if messages may refer back to it."""

    value: Any
    style: Style = "plain"
    thing: str = ""
    known: Known = ""


Slots = Mapping[str, Slot]


@dataclass(frozen=True)
class PathCall:
    """One call; succeeded is False for a natural call that fails first and does not belong to the reference."""

    name: str
    arguments: Mapping[str, Any]
    succeeded: bool = True

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


@dataclass(frozen=True)
class Clause:
    """One operation that a message asks for, and the values in it."""

    operation: str
    slots: Slots


@dataclass(frozen=True)
class Login:
    """Credentials that a message gives in passing, because a call needs a login first."""

    class_name: str
    user: str
    password: str = ""


@dataclass(frozen=True)
class PathTurn:
    """One user message and its calls; left_out: the slot whose value is missing (without_value) or given (value)."""

    class_name: str
    clauses: tuple[Clause, ...]
    calls: tuple[PathCall, ...]
    asking: Asking = "everything"
    left_out: str = ""
    login: Login | None = None


@dataclass(frozen=True)
class CallPath:
    """The turns of a task, the state in which they start, and the tools that are withheld or hidden.

    A turn of None reveals withheld tools: the environment speaks, and the calls are those of
    the turn before. calls: by turn, including such turns.
    """

    category: Category
    classes: tuple[str, ...]
    config: Mapping[str, Any]
    turns: tuple[PathTurn | None, ...]
    calls: tuple[tuple[PathCall, ...], ...]
    withheld: Mapping[int, tuple[str, ...]]
    hidden: tuple[str, ...]
    kinds: frozenset[str]
