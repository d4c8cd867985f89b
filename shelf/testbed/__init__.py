"""The test bed: synthesised tasks, and the small policy of the quickstart."""
