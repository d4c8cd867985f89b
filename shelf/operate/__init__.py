"""What a machine and a recipe say before a run: can it run here, what is a step of it, what may be set."""
