"""The calls that the messages of a task must let a reader recover."""

import copy
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from env_service.environments.bfcl.catalog import CLASSES, Task, documents
from env_service.environments.bfcl.tools import Toolbox
from shelf.testbed.synthesis.llm.words import leaves, normal, says
from shelf.testbed.synthesis.path import PathCall

_TRIVIAL = 10
"""Whole numbers below this occur in results by chance."""


@cache
def tool_parameters() -> Mapping[str, Mapping[str, Any]]:
    """The schemas of every tool's arguments, by tool and argument."""
    described = (document for name in CLASSES for document in documents(name))
    return {document["name"]: document["parameters"]["properties"] for document in described}


class Expected(NamedTuple):
    """A call that the words must give; free: its arguments with a value that only a result tells."""

    call: PathCall
    free: frozenset[str] = frozenset()


def expected_calls(
    turns: Sequence[Sequence[PathCall]], users: Sequence[str], task: Task
) -> tuple[tuple[Expected, ...], ...]:
    """These successful calls by turn, each with what its words need not tell; task: in whose state they start."""
    box, told, results, expected = Toolbox(task), set(), "", []
    for calls, user in zip(turns, users, strict=True):
        told |= {normal(leaf) for call in calls for leaf in leaves(call.arguments) if says(user, leaf)}
        turn = []
        for call in calls:
            free = {
                name
                for name, value in call.arguments.items()
                for leaf in leaves(value)
                if normal(leaf) not in told and _is_shown(leaf, results) and not _is_documented(call.name, name, leaf)
            }
            turn.append(Expected(call, frozenset(free)))
            # Two tools change the list that they receive.
            results += f"\n{box.call(call.name, copy.deepcopy(dict(call.arguments))).text}"
        expected.append(tuple(turn))
    return tuple(expected)


def _is_shown(leaf: Any, results: str) -> bool:
    if isinstance(leaf, bool) or leaf is None:
        return False
    chance = isinstance(leaf, int | float) and float(leaf).is_integer() and abs(leaf) < _TRIVIAL
    return not chance and says(results, leaf)


def _is_documented(tool: str, argument: str, leaf: Any) -> bool:
    """Return whether a text is one of those that the tool's document offers, such as a mode."""
    described = str(tool_parameters().get(tool, {}).get(argument, ""))
    return isinstance(leaf, str) and says(described, leaf)
