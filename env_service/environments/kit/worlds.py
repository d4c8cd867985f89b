"""A world whose tools are methods: the shortest way to write one."""

import inspect
import json
from collections.abc import Mapping
from typing import Any
from unicodedata import normalize

from env_service.environments.kit.tasks import Outcome


class ToolError(Exception):
    """Raised when a tool cannot carry out a call; the policy reads the message."""


def method_name(tool: str) -> str:
    """The method of a tool, as Python reads names: `tool_list_all` for `list.all`."""
    return "tool_" + "".join(each if f"_{each}".isidentifier() else "_" for each in normalize("NFKC", tool))


class MethodWorld:
    """Runs the tool NAME as the method `tool_NAME`, `list.all` as `tool_list_all`. A subclass adds these and `check`.

    A method gets its document's arguments, checked if `strict` (2.0 is an integer); it returns text, an enum or JSON.
    """

    def bound(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The method that runs a tool; TypeError if it does not take the arguments, as few take one named `self`."""
        method = getattr(self, method_name(name))
        run, *owner = (method.__func__, method.__self__) if inspect.ismethod(method) else (method,)
        inspect.signature(run).bind(*owner, **arguments)
        return method

    def call(self, name: str, arguments: dict[str, Any]) -> Outcome:
        """Run one tool; a ToolError is an outcome, any other exception a failure of the environment."""
        try:
            method = self.bound(name, arguments)
        except TypeError as error:  # a document that does not forbid further arguments lets them through
            return Outcome(f"Error: {name}: {error}.", "signature")
        try:
            result = method(**arguments)
        except ToolError as error:
            return Outcome(f"Error: {error}", "execution")
        try:
            return Outcome(str.__str__(result) if isinstance(result, str) else json.dumps(result, ensure_ascii=False))
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} returns {result!r:.80}, which is neither text nor JSON: {error}.") from error
