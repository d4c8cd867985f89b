"""Environments by name: built in, from installed packages, or named in the setting `environments`.

A package adds `library = "library_env.environment:LibraryEnvironment"` to its entry points of the group GROUP.
"""

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

from env_service import BENCHMARK, MODULE
from env_service.environments.base import Environment
from env_service.protocol import DEFAULT_ENVIRONMENT

GROUP = "seal.environments"

_BUILT_IN: dict[str, str] = {DEFAULT_ENVIRONMENT: "env_service.environments.bfcl.environment:BfclEnvironment"}
_ADDED: dict[str, str] = {}
_LOADED: dict[str, Environment] = {}


def register(name: str, location: str) -> None:
    """Add or replace an environment; location is "package.module:Class", imported on first use."""
    _ADDED[name] = location
    _LOADED.pop(name, None)


@cache
def _installed() -> Mapping[str, str]:
    return {point.name: point.value for point in entry_points(group=GROUP)}


def locations() -> Mapping[str, str]:
    """Known environments, from name to location. A package cannot replace a built-in one."""
    return {**_installed(), **_BUILT_IN, **_ADDED}


def get_environment(name: str) -> Environment:
    """The environment of that name, imported on first use; ValueError if it is unknown, not installed or misnamed."""
    if name not in _LOADED:
        known = locations()
        if name not in known:
            raise ValueError(
                f"env_type {name!r} is unknown; choose one of {', '.join(sorted(known))}, or install its package "
                "(pip install --no-deps -e . for an environment of this repository)."
            )
        _LOADED[name] = _imported(name, known[name])
    return _LOADED[name]


def _imported(name: str, location: str) -> Environment:
    try:
        environment = pkgutil.resolve_name(location)()
        named = environment.name
    except (Exception, SystemExit) as error:  # a package is third-party code and can raise anything
        lacks = isinstance(error, ModuleNotFoundError) and error.name == MODULE
        fix = f": pip install --no-deps {BENCHMARK}" if lacks else ""
        raise ValueError(
            f"The environment {name} ({location}) cannot be imported ({type(error).__name__}: {error}){fix}."
        ) from error
    if named != name:
        raise ValueError(f"{location} calls itself {named!r}: register it under that name, not as {name!r}.")
    return environment
