"""What the commands that ask endpoints share: refusals in one sentence, and Ctrl-C."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from seal.cli.commands import refusing
from seal.system import exits


@contextmanager
def one_sentence(command: str) -> Iterator[None]:
    """Turn what a user can fix into one sentence and exit code 2, and Ctrl-C into 130."""
    from seal.rollout.env_client import EnvironmentFault
    from shelf.suites.chat import EndpointRefused

    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    try:
        with refusing(command, EndpointRefused, EnvironmentFault):
            yield
    except KeyboardInterrupt:
        typer.echo("Interrupted; the same command resumes.", err=True)
        raise typer.Exit(exits.INTERRUPTED) from None
