"""Checks and plans before a run: whether the machine can run the recipe, the parts of a step, the settings."""
