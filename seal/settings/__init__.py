"""Every key of `seal.*` and `env_service.*`: type, bounds, default and description, once; CONTRIBUTING.md adds one."""

from seal.settings.run import SealSettings
from seal.settings.sentences import SettingsError
from seal.settings.service import EnvServiceSettings

BLOCKS = {"seal": SealSettings, "env_service": EnvServiceSettings}

__all__ = ["BLOCKS", "EnvServiceSettings", "SealSettings", "SettingsError"]
