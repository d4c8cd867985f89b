"""A list over MCP, on the official server: its arguments are the items at the start."""

import os
import sys
import time

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

ITEMS = sys.argv[1:]
server = MCPServer("list", log_level="CRITICAL")


@server.tool()
def add_item(item: str) -> str:
    """Put an item on the list."""
    if item in ("wait", "end"):  # for tests of a server that hangs or dies
        time.sleep(600) if item == "wait" else os._exit(3)
    ITEMS.append(item)
    return f"{item} is on the list."


@server.tool()
def remove_item(item: str) -> str:
    """Take an item off the list."""
    if item not in ITEMS:
        raise ToolError("that item is not on the list.")
    ITEMS.remove(item)
    return f"{item} is off the list."


@server.tool()
def show_list() -> str:
    """Show the list."""
    if "fog" in ITEMS:  # for tests of a list that cannot be read
        time.sleep(600)
    return ", ".join(sorted(ITEMS))


if __name__ == "__main__":
    server.run()
