"""A run to look at: the report and the viewer."""
