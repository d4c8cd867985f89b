"""BFCL V4 with its official tool: single turn, live, irrelevance, multi turn, memory and web search."""
