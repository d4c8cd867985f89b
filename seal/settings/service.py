"""`env_service`: the environment service and how a rollout waits for it."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat

from seal.settings.base import Count, Settings
from seal.settings.data import BENCHMARK


class EnvServiceSettings(Settings):
    """The environment service of a run (docs/operate.md)."""

    env_type: str = BENCHMARK
    """The environment of tasks whose selection names none: the benchmark's, or another one (docs/environments.md)."""
    env_url: str | tuple[str, ...] = "http://127.0.0.1:8082"
    """The address of the service, or a list: an episode stays with one, and a dead one is left out."""
    prompt_mode: str = "bfcl_qwen_fc"
    """The prompt and parser format (docs/operate.md)."""
    prompt_modes: dict[str, str] = Field(default_factory=dict)
    """Formats of single environments, as `{tau2_telecom: hermes}`; others use `prompt_mode`."""
    timeout_s: PositiveFloat = 30
    """Seconds for one answer."""
    attempts: Count = 4
    """Number of times a request is sent before its service counts as failed."""
    restart_wait_s: NonNegativeFloat = 120
    """Seconds that an episode waits while no service answers."""

    def __hash__(self) -> int:
        # A process keeps one set of clients for its settings, and `prompt_modes` is not hashable.
        return hash(self.model_dump_json())

    def mode(self, environment: str) -> str:
        """The prompt and parser format of an environment."""
        return self.prompt_modes.get(environment, self.prompt_mode)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """The settings of a composed configuration; SettingsError for the first wrong one."""
        return cls.read(config["env_service"], "env_service")
