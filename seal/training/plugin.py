"""Imported by verl's plugin loader in every process: SEAL's platform and trainer."""

from seal.backends import cpu_platform  # noqa: F401
from seal.training import trainer  # noqa: F401
