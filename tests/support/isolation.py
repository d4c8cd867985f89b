"""Tests see the environments, extensions and commands of this repository, whatever else is installed beside it."""

import signal
import sysconfig
from importlib import metadata
from pathlib import Path

OWN = "seal-rl"


def hide_other_packages() -> None:
    """Leave packages that add to SEAL, and lie where this interpreter installs them, out of what Python finds.

    A test's own package lies elsewhere. Processes that a test starts are not changed.
    """
    found, site = metadata.distributions, Path(sysconfig.get_paths()["purelib"])

    def adds(each: metadata.Distribution) -> bool:
        return any(point.group.startswith("seal.") for point in each.entry_points) and each.name != OWN

    hidden = {each.name for each in found(path=[str(site)]) if adds(each)}

    def distributions(**context):
        there = found(**context)
        return (each for each in there if each.name not in hidden or Path(str(each.locate_file(""))) != site)

    metadata.distributions = distributions


def hear_interrupts() -> None:
    """A shell's background job ignores Ctrl-C, and so would every program that a test starts and interrupts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
