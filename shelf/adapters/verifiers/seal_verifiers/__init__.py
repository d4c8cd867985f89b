"""SEAL's environment service as a verifiers environment: `vf-eval seal-verifiers`, or `load_environment()`.

The service plays the user and the tools; the model's messages stay raw text, with calls
in the form that the service's prompt mode describes.
"""

from seal_verifiers.environment import SealEnv, SealEnvConfig, load_environment
from seal_verifiers.harness import SealHarness, SealHarnessConfig
from seal_verifiers.taskset import SealData, SealTask, SealTaskset, SealTasksetConfig

__all__ = [
    "SealData",
    "SealEnv",
    "SealEnvConfig",
    "SealHarness",
    "SealHarnessConfig",
    "SealTask",
    "SealTaskset",
    "SealTasksetConfig",
    "load_environment",
]
