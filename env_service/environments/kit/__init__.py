"""The kit that environments with tool calls share: calls, formats, the dialogue, and the conformance suite."""
