"""Rollouts of other programs: read, diagnosed, and written in their format."""
