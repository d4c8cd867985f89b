"""SEAL's environment service as an OpenEnv environment: `SealEnv` is the client, `server.app` the server."""

from .client import SealEnv
from .models import Message, SealAction, SealObservation, SealState

__all__ = ["Message", "SealAction", "SealEnv", "SealObservation", "SealState"]
