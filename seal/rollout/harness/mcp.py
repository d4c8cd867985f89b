"""The tools of an episode, and its user, as an MCP server over streamable HTTP, with the official library.

One server serves the rollouts of a worker; it keeps nothing between requests, so that any client can use it.
"""

from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError

from seal.rollout.harness.task import USER, Task

TASK = "seal.task"
"""The key of a request's scope that holds its task."""
HOW = (
    f"A user talks to you over several turns. Call {USER} first, do with the other tools what the user asks, then call "
    f"{USER} with your answer, until the conversation has ended. The tools may change between turns."
)
USER_TOOL = types.Tool(
    name=USER,
    description="Give the user your answer, which ends your turn, and get the user's next message. The first time, "
    "leave the answer out.",
    input_schema={"type": "object", "properties": {"answer": {"type": "string"}}},
)


def manager() -> StreamableHTTPSessionManager:
    """The server's ASGI application, once it is run."""
    server = Server("seal", instructions=HOW, on_list_tools=_list_tools, on_call_tool=_call_tool)
    return StreamableHTTPSessionManager(server, json_response=True, stateless=True)


async def _list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    try:
        tools = ctx.request.scope[TASK].tools
    except ValueError as error:
        raise MCPError(types.INVALID_REQUEST, str(error)) from error
    listed = (types.Tool(input_schema=tool["function"].pop("parameters"), **tool["function"]) for tool in tools)
    return types.ListToolsResult(tools=[USER_TOOL, *listed])


async def _call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    task: Task = ctx.request.scope[TASK]
    given = params.arguments or {}
    try:
        said = task.next_user_message(given.get("answer")) if params.name == USER else task.call(params.name, given)
        return types.CallToolResult(content=[types.TextContent(text=await said)])
    except (ValueError, RuntimeError) as error:
        raise MCPError(types.INVALID_REQUEST, str(error)) from error
