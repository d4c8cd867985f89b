"""`env_service`: the environment service and how a rollout waits for it."""

from collections.abc import Mapping
from typing import Any, Self

from seal.settings.base import Count, NonNegative, Positive, Settings


class EnvServiceSettings(Settings):
    """The environment service of a run (docs/service.md, docs/rollout.md)."""

    env_type: str = "bfcl"
    """The environment that the service plays; training supports `bfcl`."""
    env_url: str | tuple[str, ...] = "http://127.0.0.1:8082"
    """The address of the service, or a list: an episode stays with one, and a dead one is left out."""
    prompt_mode: str = "bfcl_qwen_fc"
    """The prompt and parser format (docs/service.md)."""
    timeout_s: Positive = 30
    """Seconds for one answer."""
    task_files: tuple[str, ...] = ()
    """Files of synthesised tasks that a service started by the launcher serves, besides those of `seal.data`."""
    attempts: Count = 4
    """How often a request is sent before its service counts as failed."""
    restart_wait_s: NonNegative = 120
    """Seconds that an episode waits while no service answers."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The settings of a composed configuration; SettingsError for the first wrong one."""
        return cls.read(config["env_service"], "env_service")
