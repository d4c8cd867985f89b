"""The command line: one module per command, each with an `app` that `seal.cli.main` loads when it is used."""
