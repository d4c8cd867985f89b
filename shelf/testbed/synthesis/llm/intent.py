"""What the message of a turn must let a reader recover, what it must say, and what it must not give away."""

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

from env_service.environments.bfcl.catalog import CLASSES, Task, documents
from env_service.environments.bfcl.tools import Toolbox
from shelf.testbed.synthesis.llm.words import leaves, normal, says
from shelf.testbed.synthesis.path import Asking, CallPath, PathCall, PathTurn

_TRIVIAL = 10
"""Whole numbers below this occur in results by chance."""


@cache
def tool_parameters() -> Mapping[str, Mapping[str, Any]]:
    """The schemas of every tool's arguments, by tool and argument."""
    described = (document for name in CLASSES for document in documents(name))
    return {document["name"]: document["parameters"]["properties"] for document in described}


class Expected(NamedTuple):
    """A call that the words must give; free: its arguments with a value that only a result tells, and these values."""

    call: PathCall
    free: frozenset[str]
    shown: tuple[Any, ...]


@dataclass(frozen=True)
class Intent:
    """One turn. A turn without a message of the user's (asking is None) reveals tools.

    about: the calls that the message is about, made in this turn or, if something is
    missing, in the next. expected: those that a reader must list for this turn. say,
    before, secret: values that the message must say, may refer to, and must not say.
    unclear: the calls alone do not tell what is asked for.
    """

    about: tuple[PathCall, ...]
    expected: tuple[Expected, ...]
    asking: Asking | None = "everything"
    say: tuple[Any, ...] = ()
    before: tuple[Any, ...] = ()
    secret: tuple[Any, ...] = ()
    unclear: bool = False

    @property
    def ordered(self) -> bool:
        """Whether the order of the calls is what the words say; after a failure it is not."""
        return all(call.succeeded for call in self.about)

    @property
    def loose(self) -> bool:
        """Whether a reader may think of look-ups and alternatives that the path has not."""
        return self.unclear or any(expected.free for expected in self.expected)


def path_intents(path: CallPath, task: Task) -> tuple[Intent, ...]:
    """What each turn of a path intends; task: the path's, in whose state it starts."""
    knowledge, intents = _Knowledge(task), []
    for number, (turn, calls) in enumerate(zip(path.turns, path.calls, strict=True)):
        if turn is None:
            intents.append(Intent(calls, _needed(knowledge.follow(calls), knowledge), asking=None))
        else:
            missing = turn.asking in ("without_tool", "without_value")
            intents.append(_intent(turn, calls, path.calls[number + 1] if missing else calls, knowledge))
    return tuple(intents)


def told_intents(turns: Sequence[Sequence[PathCall]], users: Sequence[str], task: Task) -> tuple[Intent, ...]:
    """What messages that are there already must let a reader recover of these successful calls."""
    knowledge, intents = _Knowledge(task), []
    for calls, user in zip(turns, users, strict=True):
        knowledge.tell(leaf for call in calls for leaf in leaves(call.arguments) if says(user, leaf))
        intents.append(Intent(tuple(calls), tuple(knowledge.follow(calls))))
    return tuple(intents)


class _Knowledge:
    """What messages have told and results have shown so far."""

    def __init__(self, task: Task) -> None:
        self._told: set[str] = set()
        self._box = Toolbox(task)
        self._results = ""

    def tell(self, values: Iterable[Any]) -> None:
        """The user says these values."""
        self._told |= {normal(leaf) for value in values for leaf in leaves(value)}

    def is_told(self, value: Any) -> bool:
        """Whether a message has said all of a value."""
        return all(normal(leaf) in self._told for leaf in leaves(value))

    def follow(self, calls: Sequence[PathCall], new: Collection[Any] = ()) -> list[Expected]:
        """Make calls, and say of each what only results tell; new: ids that no message has told."""
        followed, unnamed = [], {normal(value) for value in new}
        for call in calls:
            shown = {
                name: [
                    leaf
                    for leaf in leaves(value)
                    if normal(leaf) in unnamed or (self._is_shown(leaf) and not _is_documented(call.name, name, leaf))
                ]
                for name, value in call.arguments.items()
            }
            free = frozenset(name for name, leaves_shown in shown.items() if leaves_shown)
            followed.append(Expected(call, free, tuple(chain.from_iterable(shown.values()))))
            # Two tools change the list that they receive.
            self._results += f"\n{self._box.call(call.name, copy.deepcopy(dict(call.arguments))).text}"
        return followed

    def _is_shown(self, leaf: Any) -> bool:
        if isinstance(leaf, bool) or leaf is None or self.is_told(leaf):
            return False
        chance = isinstance(leaf, int | float) and float(leaf).is_integer() and abs(leaf) < _TRIVIAL
        return not chance and says(self._results, leaf)


def _is_documented(tool: str, argument: str, leaf: Any) -> bool:
    """Whether a text is one of those that the tool's document offers, such as a mode."""
    described = str(tool_parameters().get(tool, {}).get(argument, ""))
    return isinstance(leaf, str) and says(described, leaf)


def _intent(turn: PathTurn, calls: Sequence[PathCall], about: Sequence[PathCall], knowledge: _Knowledge) -> Intent:
    slots = [(name, slot) for clause in turn.clauses for name, slot in clause.slots.items()]
    left_out = tuple(slot.value for name, slot in slots if name == turn.left_out)
    credentials = filter(None, (turn.login.user, turn.login.password)) if turn.login else ()
    new = tuple(slot.value for _, slot in slots if slot.known == "new")
    before = tuple(slot.value for _, slot in slots if slot.known == "before")
    if turn.asking == "value":
        say = left_out
    else:
        first = [slot.value for name, slot in slots if slot.known == "" and name != turn.left_out]
        say = (*first, *credentials)
    knowledge.tell(say)
    followed = knowledge.follow(calls, new)
    given_away = left_out if turn.asking == "without_value" else ()
    shown = (leaf for expected in followed for leaf in expected.shown if leaf not in before)
    return Intent(
        about=tuple(about),
        expected=_needed(followed, knowledge),
        asking=turn.asking,
        say=say,
        before=before,
        secret=(*given_away, *new, *shown),
        unclear=_unclear(about, say),
    )


def _needed(followed: Sequence[Expected], knowledge: _Knowledge) -> tuple[Expected, ...]:
    """The calls that words give: each failed call once, and no step between it and its repetition but what is told."""
    skipped: set[int] = set()
    for number, expected in enumerate(followed):
        if expected.call.succeeded:
            continue
        repeated = [n for n in range(number + 1, len(followed)) if str(followed[n].call) == str(expected.call)]
        if repeated:
            skipped |= {n for n in range(number + 1, repeated[-1]) if not _is_told(followed[n].call, knowledge)}
            skipped |= set(repeated)
    return tuple(expected for number, expected in enumerate(followed) if number not in skipped)


def _is_told(call: PathCall, knowledge: _Knowledge) -> bool:
    values = list(leaves(call.arguments))
    return bool(values) and all(knowledge.is_told(value) for value in values)


def _unclear(about: Sequence[PathCall], say: Iterable[Any]) -> bool:
    used = {normal(leaf) for call in about for leaf in leaves(call.arguments)}
    return any(not call.succeeded for call in about) or any(
        normal(leaf) not in used for value in say for leaf in leaves(value)
    )
