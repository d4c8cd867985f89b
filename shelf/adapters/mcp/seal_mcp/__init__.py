"""An episode of SEAL's environment service as an MCP server: `seal-mcp --task ID`, over standard input and output."""
