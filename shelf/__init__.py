"""Beside the core: tools around training, each a package with its own tests, page and commands."""
