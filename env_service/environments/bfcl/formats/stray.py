"""Calls that a message writes outside its format, among the tools of the benchmark."""

from __future__ import annotations

from functools import cache

from env_service.environments.bfcl.catalog import CLASSES, documents
from env_service.environments.kit import stray


def stray_call(text: str) -> tuple[str, ...]:
    """Return one refusal that names the first call written outside the format, or () when there is none."""
    return stray.stray_call(text, _tools())


@cache
def _tools() -> frozenset[str]:
    return frozenset(document["name"] for name in CLASSES for document in documents(name))
