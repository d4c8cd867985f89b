"""The MCP server of one episode, on the official library: its tools turn by turn, the user as a tool, the result."""

import json
from typing import Any

import anyio
import mcp_types as types
from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError

from env_service.client import ServiceError
from seal.method.diagnosis.schema import with_json_types
from seal.rollout.harness.mcp import HOW, USER, USER_TOOL
from seal_mcp.episode import Episode

RESULT_URI, JSON = "seal://episode/result", "application/json"


def server(episode: Episode) -> Server[Any]:
    """The server, for one client; ValueError if a tool of the environment has the user's name."""
    if any(tool["name"] == USER for tool in episode.tools):
        raise ValueError(f"The environment has a tool {USER} of its own, which is the user's name here: rename it.")
    bus = InMemorySubscriptionBus()
    one_at_a_time = anyio.Lock()

    async def list_tools(ctx: ServerRequestContext, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[USER_TOOL, *map(_tool, episode.tools)], ttl_ms=0)

    async def call_tool(ctx: ServerRequestContext, params: types.CallToolRequestParams) -> types.CallToolResult:
        name, given = params.name, params.arguments or {}
        answer = None if given.get("answer") is None else str(given["answer"])
        verb = (episode.next_message, answer) if name == USER else (episode.call, name, given)
        async with one_at_a_time:
            said = await anyio.to_thread.run_sync(_asked, *verb)
        if said.revealed:  # a notification for clients from before July 2026, an event for later ones
            await ctx.session.send_tool_list_changed()
            await bus.publish(ToolsListChanged())
        return types.CallToolResult(content=[types.TextContent(text=said.text)], is_error=said.failed)

    async def list_resources(ctx: ServerRequestContext, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(uri=RESULT_URI, name="result", mime_type=JSON)])

    async def read_resource(ctx: ServerRequestContext, params: Any) -> types.ReadResourceResult:
        if params.uri != RESULT_URI or not episode.ended:
            raise MCPError(types.INVALID_PARAMS, f"There is only {RESULT_URI}, once the conversation has ended.")
        text = json.dumps(await anyio.to_thread.run_sync(_asked, episode.result))
        content = types.TextResourceContents(uri=RESULT_URI, mime_type=JSON, text=text)
        return types.ReadResourceResult(contents=[content], ttl_ms=0)

    return Server(
        "seal",
        instructions=HOW,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
        on_subscriptions_listen=ListenHandler(bus),
    )


async def serve(episode: Episode) -> None:
    """Serve the episode over standard input and output until the client leaves."""
    played = server(episode)
    async with stdio_server() as streams:
        await played.run(*streams, played.create_initialization_options(NotificationOptions(tools_changed=True)))


def _tool(document: Any) -> types.Tool:
    schema = with_json_types(document["parameters"])
    return types.Tool(name=document["name"], description=document["description"], input_schema=schema)


def _asked(verb: Any, *arguments: Any) -> Any:
    """Return the service's answer; its faults become protocol errors, never the result of a tool."""
    try:
        return verb(*arguments)
    except ServiceError as error:
        raise MCPError(types.INVALID_REQUEST, str(error)) from error
