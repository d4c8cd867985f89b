"""Imported by verl's plugin loader in every process: SEAL's platform and trainers."""

from seal.backends import cpu_platform  # noqa: F401
from seal.training import async_trainer, trainer  # noqa: F401
