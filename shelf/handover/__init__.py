"""A run's checkpoint as a model that others can load."""
