"""Rollouts: one agent loop per trajectory, against the environment service."""
