"""Rollouts of other programs: read, diagnosed, and written for them."""
