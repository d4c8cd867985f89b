"""Synthesised tasks: executable call paths on the benchmark's simulators, put into a user's words and verified."""
