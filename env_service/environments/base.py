"""What an environment is.

An environment is a set of tasks that can be opened as episodes. An episode
takes assistant messages and gives back messages; at any moment it can be
evaluated, which changes nothing in it. That is all the service asks for:
lifecycles, processes, deadlines and HTTP are its own (`episodes.py`,
`workers.py`, `app.py`).

Adding one takes a module with an :class:`Environment` and one line
(`register`); no other file changes. Rules that make the rest work:

- an episode is deterministic: the same task, parameters and messages give the
  same answers, so that it can be rebuilt elsewhere by replaying its messages;
- an episode owns its state: nothing it does can be seen by another one;
- whatever a policy may make slow goes through `guard.run`;
- bad input raises ValueError with one sentence that says what to mend.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")
Json = dict[str, Any]
"""Keys to JSON values; dataclasses may stand among them and become objects."""


class Guard:
    """Runs the calls of a step; the service's own kind gives each a deadline."""

    def run(self, call: Callable[[], Result], refused: Callable[[str], Result]) -> Result:
        """The call's result, or `refused(reason)` where the call broke a limit when it was first made."""
        return call()


class Episode(Protocol):
    """One running dialogue."""

    def start(self) -> Json:
        """The answer to /create: {"state": [message, ...], "info": {...}}. Changes nothing."""

    def step(self, content: str, truncated: bool) -> Json:
        """The answer to /step: {"state", "reward", "is_terminated", "info"}; ValueError once terminated."""

    def evaluate(self, params: Mapping[str, Any]) -> Json | float:
        """The answer to /evaluate; a float when params["sparse"] is true. Changes nothing."""

    def describe(self) -> str:
        """The answer to /get_info: the tools available now, as text."""


class Environment(Protocol):
    """A set of tasks."""

    name: str

    def task_ids(self, split: str) -> Sequence[str]:
        """The ids of a split's tasks."""

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> Episode:
        """Start an episode; ValueError for an unknown task or bad parameters."""

    def prepare(self) -> Iterator[None]:
        """Work ahead of need, in pieces of a few milliseconds: a worker does one whenever it is idle."""

    def version(self) -> Json:
        """What results depend on: data hash, package versions."""


_MODULES: dict[str, str] = {"bfcl": "env_service.environments.bfcl.environment:BfclEnvironment"}
_OPENED: dict[str, Environment] = {}


def register(name: str, location: str) -> None:
    """Add an environment; location is "package.module:Class", imported when first used."""
    _MODULES[name] = location
    _OPENED.pop(name, None)


def locations() -> Mapping[str, str]:
    """Registered environments, name to location."""
    return dict(_MODULES)


def get_environment(name: str) -> Environment:
    """The environment of that name; ValueError lists the known ones."""
    if name not in _OPENED:
        if name not in _MODULES:
            raise ValueError(f"env_type {name!r} is unknown; choose one of {', '.join(sorted(_MODULES))}.")
        module, _, attribute = _MODULES[name].partition(":")
        _OPENED[name] = getattr(importlib.import_module(module), attribute)()
    return _OPENED[name]
