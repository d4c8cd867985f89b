"""Stored rollouts played again: `verify` compares a run with its own logs, `rescore` with how it is judged now."""
