"""Environments of these tests, found by name, and gone afterwards."""

from collections.abc import Callable, Iterator

import pytest

from env_service.environments import registry


@pytest.fixture
def registered() -> Iterator[Callable[[str, str], str]]:
    """Registers an environment (name, location) until the test ends; returns the name."""
    names: list[str] = []

    def register(name: str, location: str) -> str:
        names.append(name)
        registry.register(name, location)
        return name

    yield register
    for name in names:
        registry._ADDED.pop(name, None)
        registry._LOADED.pop(name, None)
