"""An agent of Pydantic AI as a harness: its tools over MCP, its model at the gateway."""

import asyncio
import json
import os
import urllib.request

from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.usage import UsageLimits

USER, ENDED = "next_user_message", "The conversation has ended."


async def play() -> None:
    """Play one episode. The program talks to the user, the policy only sees the tools."""
    tools = MCPToolset(os.environ["SEAL_MCP_URL"], read_timeout=300, cache_tools=False)
    shown = tools.filtered(lambda context, tool: tool.name != USER)
    agent, history = Agent(OpenAIChatModel(os.environ["OPENAI_MODEL"]), toolsets=[shown]), []
    async with tools:
        message = await tools.direct_call_tool(USER, {})
        while message != ENDED:
            # The recipe's budgets end a rollout; a limit of the SDK's own would be a failure of the harness.
            result = await agent.run(message, message_history=history, usage_limits=UsageLimits(request_limit=None))
            history = result.all_messages()
            message = await tools.direct_call_tool(USER, {"answer": result.output})


def main() -> None:
    """Play one episode after another, in one event loop: the SDK keeps connections."""
    with asyncio.Runner() as runner:
        while True:
            with urllib.request.urlopen(os.environ["SEAL_NEXT_URL"]) as rollout:
                os.environ.update(json.load(rollout))
            runner.run(play())


if __name__ == "__main__":
    main()
