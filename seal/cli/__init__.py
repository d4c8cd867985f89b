"""The `seal` command: one module per command or group of commands."""
