"""Imported by verl's plugin loader in every process: SEAL's platform. Each import here costs every process of a run."""

from seal.backends import cpu_platform  # noqa: F401
