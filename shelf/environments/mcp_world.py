"""A world with the tools of an MCP server, which is a separate process over stdio and holds the episode's state."""

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from anyio.from_thread import BlockingPortalProvider
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, REQUEST_TIMEOUT
from pydantic_core import PydanticSerializationError, to_json

from env_service.environments.base import Document
from env_service.environments.kit.contents import contents_text
from env_service.environments.kit.tasks import Check, Outcome
from seal.method.diagnosis.evidence import CallEvidence

START_S = 120.0
"""The time within which a server must start."""
DEADLINE_S = 5.0
"""The deadline of a call. The service kills a worker whose call waits longer than six times BFCL_CALL_SECONDS."""
_LOOP = BlockingPortalProvider()
"""The event loop of all servers of this process, in a thread that lives as long as one of them."""


class McpWorld(ABC):
    """A subclass adds `check`, which may ask the server's reading tools with `read`.

    The server must be deterministic, because replays start a new one. It inherits the memory limit of the worker
    (BFCL_MEMORY_MB) and, of the environment variables, only PATH, HOME and the like.
    """

    def __init__(self, server: StdioServerParameters, seconds: float = DEADLINE_S) -> None:
        """Start the server; RuntimeError if it does not start. seconds: the deadline of each call."""
        self._seconds = seconds
        with ExitStack() as stack:
            self._loop = stack.enter_context(_LOOP)
            client = Client(server, read_timeout_seconds=START_S)
            try:
                self._client = stack.enter_context(self._loop.wrap_async_context_manager(client))
            except (OSError, ExceptionGroup, MCPError) as error:
                raise RuntimeError(f"The MCP server {server.command} does not start: {_first(error)}") from error
            # In a thread: closing may take seconds, and the last reference may be dropped in the loop's own thread.
            end = threading.Thread(target=stack.pop_all().close, daemon=True)
        self.close = weakref.finalize(self, end.start)

    def documents(self) -> tuple[Document, ...]:
        """The tools that the server lists, as the kit's documents."""
        pages = [self._loop.call(self._client.list_tools)]
        while cursor := pages[-1].next_cursor:
            pages.append(self._loop.call(partial(self._client.list_tools, cursor=cursor)))
        return tuple(
            {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
            for page in pages
            for tool in page.tools
        )

    def call(self, name: str, arguments: dict[str, Any]) -> Outcome:
        """Run a tool; errors and a missed deadline are outcomes, a dead server raises RuntimeError."""
        try:
            to_json(arguments)  # the client ends with what it cannot write
            result = self._loop.call(self._client.call_tool, name, arguments, self._seconds)
        except PydanticSerializationError as error:
            return Outcome(f"Error: {name} cannot be sent its arguments: {error}", "signature")
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                return Outcome(f"Error: {name} did not answer within {self._seconds:g} s.", "deadline")
            if error.code == CONNECTION_CLOSED:
                raise RuntimeError(f"The MCP server ended in a call of {name}.") from error
            return Outcome(f"Error: {error}", "signature" if error.code == INVALID_PARAMS else "execution")
        parts = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
        return Outcome(contents_text(parts, result.structured_content), "execution" if result.is_error else None)

    def read(self, name: str, /, **arguments: Any) -> str:
        """The text of a tool's result or error; RuntimeError for a missed deadline, which says nothing of a state."""
        outcome = self.call(name, arguments)
        if outcome.error == "deadline":
            raise RuntimeError(f"The MCP server did not let {name} be read within {self._seconds:g} s.")
        return outcome.text

    @abstractmethod
    def check(self, turn: int, calls: Sequence[CallEvidence]) -> Check:
        """See `kit.tasks.World`."""


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
