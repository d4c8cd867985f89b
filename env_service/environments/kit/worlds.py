"""A world whose tools are methods: the shortest way to write one."""

import json
from typing import Any

from env_service.environments.kit.tasks import Outcome


class ToolError(Exception):
    """Raised when a tool cannot carry out a call; the policy reads the message."""


class MethodWorld:
    """Runs the tool NAME as the method `tool_NAME`. A subclass adds these and `check` (see `World`).

    A method gets its document's arguments, already checked if the environment is strict, and returns text or JSON.
    """

    def call(self, name: str, arguments: dict[str, Any]) -> Outcome:
        """Run one tool; a ToolError is an outcome, any other exception a failure of the environment."""
        try:
            result = getattr(self, f"tool_{name}")(**arguments)
        except ToolError as error:
            return Outcome(f"Error: {error}", "execution")
        return Outcome(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False))
