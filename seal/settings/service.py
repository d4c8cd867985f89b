"""`env_service`: the environment service and how a rollout waits for it."""

from collections.abc import Mapping
from typing import Any, Self

from seal.settings.base import Count, NonNegative, Positive, Settings


class EnvironmentMode(Settings):
    """The prompt and parser format of one environment."""

    environment: str
    """The environment."""
    mode: str
    """Its format."""


class EnvServiceSettings(Settings):
    """The environment service of a run (docs/operate.md)."""

    env_type: str = "bfcl"
    """The environment of tasks whose selection names none: `bfcl`, or another one (docs/environments.md)."""
    env_url: str | tuple[str, ...] = "http://127.0.0.1:8082"
    """The address of the service, or a list: an episode stays with one, and a dead one is left out."""
    prompt_mode: str = "bfcl_qwen_fc"
    """The prompt and parser format (docs/operate.md)."""
    prompt_modes: tuple[EnvironmentMode, ...] = ()
    """Formats of single environments, as `[{environment: tau2_telecom, mode: hermes}]`; others use `prompt_mode`."""
    timeout_s: Positive = 30
    """Seconds for one answer."""
    task_files: tuple[str, ...] = ()
    """Files of synthesised tasks that a service started by the launcher serves, besides those of `seal.data`."""
    delay_seconds: NonNegative = 0
    """For benchmarks: the median time for which a service started by the launcher holds back each answer to a step."""
    attempts: Count = 4
    """How often a request is sent before its service counts as failed."""
    restart_wait_s: NonNegative = 120
    """Seconds that an episode waits while no service answers."""

    def mode(self, environment: str) -> str:
        """The prompt and parser format of an environment."""
        return next((each.mode for each in self.prompt_modes if each.environment == environment), self.prompt_mode)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The settings of a composed configuration; SettingsError for the first wrong one."""
        return cls.read(config["env_service"], "env_service")
