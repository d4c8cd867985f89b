"""The command line `seal`: one module per command, each a thin layer over its room."""
