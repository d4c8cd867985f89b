"""Typed records of trajectories, validations and steps."""
