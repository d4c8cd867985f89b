"""What the tools' documents say of their arguments."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from env_service.environments.bfcl.catalog import CLASSES, documents


@cache
def _parameters() -> Mapping[str, Mapping[str, Any]]:
    found = (document for name in CLASSES for document in documents(name))
    return {document["name"]: document["parameters"]["properties"] for document in found}


def is_tool(name: str) -> bool:
    """Whether some simulator has a tool of this name."""
    return name in _parameters()


def parameters_of(tool: str) -> Mapping[str, Any]:
    """The schemas of a tool's arguments by name; empty for an unknown tool."""
    return _parameters().get(tool, {})
