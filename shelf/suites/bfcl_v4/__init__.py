"""BFCL V4 by its official tool: single turn, live, irrelevance, multi turn, memory and web search."""
