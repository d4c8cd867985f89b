"""The environment service as a Gymnasium environment; importing this package registers `seal/BFCL-v0`."""

import gymnasium

from seal.gym.environment import ServiceEnv
from seal.gym.spaces import AnyText

__all__ = ["AnyText", "ServiceEnv"]

gymnasium.register(id="seal/BFCL-v0", entry_point="seal.gym.environment:ServiceEnv", kwargs={"env_type": "bfcl"})
