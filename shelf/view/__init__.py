"""Looking at runs: the report and the viewer."""
