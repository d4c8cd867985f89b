"""Commands of the `seal` program, called in this process."""

import typer


def run(app: typer.Typer, arguments) -> int:
    """The exit code of a command; what it prints goes to stdout and stderr as usual."""
    return typer.main.get_command(app).main([str(each) for each in arguments], standalone_mode=False) or 0
