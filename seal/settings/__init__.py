"""Every key of `seal.*` and `env_service.*`: type, bounds, default and description, once.

To add a key, add a field with its docstring to the model of its block, and run
`seal settings --out docs/settings.md`. Rooms take the models; recipes hold what differs.
"""

from seal.settings.run import SealSettings
from seal.settings.sentences import SettingsError
from seal.settings.service import EnvServiceSettings

BLOCKS = {"seal": SealSettings, "env_service": EnvServiceSettings}

__all__ = ["BLOCKS", "EnvServiceSettings", "SealSettings", "SettingsError"]
