"""What an environment is.

An environment is a set of tasks that can be opened as episodes. An episode
takes assistant messages and returns messages; it can be evaluated at any moment
without being changed. The service needs nothing else: it provides lifecycles,
processes, deadlines and HTTP (`episodes.py`, `pool.py`, `worker.py`, `app.py`).

Adding an environment takes a module with an :class:`Environment` and one entry in
`_LOCATIONS` (or in the setting `environments`); no other file changes. Four rules
make the rest work:

- an episode is deterministic: the same task, parameters and messages give the
  same answers, so that it can be rebuilt elsewhere by replaying its messages;
- an episode owns its state: no other episode can see what it does;
- whatever a policy could make slow goes through `guard.run`;
- bad input raises ValueError with one sentence that says how to fix it.
"""

import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")
Json = dict[str, Any]
"""Keys to JSON values; dataclasses among the values become objects."""


class Guard:
    """Runs the calls of a step; the subclass that the service uses gives each a deadline."""

    def run(self, call: Callable[[], Result], refused: Callable[[str], Result]) -> Result:
        """The call's result, or `refused(reason)` if the call exceeded a limit when it was first made."""
        return call()


class EnvironmentEpisode(Protocol):
    """One running dialogue with a policy."""

    def start(self) -> Json:
        """The answer to /create: {"state": [message, ...], "info": {...}}. Changes nothing."""

    def step(self, content: str, truncated: bool) -> Json:
        """The answer to /step: {"state", "reward", "is_terminated", "info"}; ValueError once terminated."""

    def evaluate(self, params: Mapping[str, Any]) -> Json | float:
        """The answer to /evaluate; a float if params["sparse"] is true. Changes nothing."""

    def describe(self) -> str:
        """The answer to /get_info: the tools available now, as text."""


class Environment(Protocol):
    """A set of tasks."""

    name: str

    def task_ids(self, split: str) -> Sequence[str]:
        """The ids of a split's tasks."""

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> EnvironmentEpisode:
        """Start an episode; ValueError for an unknown task or bad parameters."""

    def prepare(self) -> Iterator[None]:
        """Preparatory work in pieces of a few milliseconds; a worker runs one whenever it is idle."""

    def load_task_file(self, path: str) -> int:
        """Serve the tasks of a file too and return their number; ValueError for a bad file.

        Only the default environment is asked to: others need not have this method.
        """

    def version(self) -> Json:
        """What results depend on: data hash, package versions."""


_LOCATIONS: dict[str, str] = {"bfcl": "env_service.environments.bfcl.environment:BfclEnvironment"}
DEFAULT = next(iter(_LOCATIONS))
"""The environment of a request that names none: the first of those above."""
_LOADED: dict[str, Environment] = {}


def register(name: str, location: str) -> None:
    """Add an environment; location is "package.module:Class", imported on first use."""
    _LOCATIONS[name] = location
    _LOADED.pop(name, None)


def locations() -> Mapping[str, str]:
    """Registered environments, name to location."""
    return dict(_LOCATIONS)


def get_environment(name: str) -> Environment:
    """The environment of that name; ValueError lists the known ones."""
    if name not in _LOADED:
        if name not in _LOCATIONS:
            raise ValueError(f"env_type {name!r} is unknown; choose one of {', '.join(sorted(_LOCATIONS))}.")
        _LOADED[name] = pkgutil.resolve_name(_LOCATIONS[name])()
    return _LOADED[name]
