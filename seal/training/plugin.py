"""Imported by verl's plugin loader in every process: SEAL's platform, trainers and weight socket."""

from seal.backends import cpu_platform, weight_socket  # noqa: F401
from seal.training import async_trainer, trainer  # noqa: F401

weight_socket.register()
