"""An agent of the OpenAI Agents SDK as a harness: its tools over MCP, its model at the gateway."""

import asyncio
import json
import os
import urllib.request

from agents import Agent, Runner, set_default_openai_api, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp, create_static_tool_filter

USER, ENDED = "next_user_message", "The conversation has ended."


async def play() -> None:
    """Play one episode. The program talks to the user, the policy only sees the tools."""
    set_tracing_disabled(True)
    set_default_openai_api("chat_completions")
    hidden = create_static_tool_filter(blocked_tool_names=[USER])
    url = {"url": os.environ["SEAL_MCP_URL"], "timeout": 300}
    async with MCPServerStreamableHttp(params=url, tool_filter=hidden, client_session_timeout_seconds=300) as tools:

        async def said(answer: dict[str, str]) -> str:
            return (await tools.call_tool(USER, answer)).content[0].text

        agent, history = Agent(name="assistant", model=os.environ["OPENAI_MODEL"], mcp_servers=[tools]), []
        message = await said({})
        while message != ENDED:
            # The recipe's budgets end a rollout; the SDK's own limit of ten turns would be a failure of the harness.
            result = await Runner.run(agent, [*history, {"role": "user", "content": message}], max_turns=1000)
            history = result.to_input_list()
            message = await said({"answer": str(result.final_output)})


def main() -> None:
    """Play one episode after another, in one event loop: the SDK keeps connections."""
    with asyncio.Runner() as runner:
        while True:
            with urllib.request.urlopen(os.environ["SEAL_NEXT_URL"]) as rollout:
                os.environ.update(json.load(rollout))
            runner.run(play())


if __name__ == "__main__":
    main()
