"""The checks before anything starts."""
