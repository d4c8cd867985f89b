"""Every key of `seal.*` and `env_service.*`: type, bounds, default and description, once.

To add a key, add a field with its docstring to the model of its block, and run
`seal settings --out docs/settings.md`. Rooms take the models; recipes hold what differs.
"""

from collections.abc import Mapping
from typing import Any

from seal.settings.run import SealSettings
from seal.settings.sentences import SettingsError
from seal.settings.service import EnvServiceSettings

BLOCKS = {"seal": SealSettings, "env_service": EnvServiceSettings}

__all__ = ["BLOCKS", "EnvServiceSettings", "SealSettings", "SettingsError", "recorded"]


def recorded(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration that a run recorded, without the settings that only other versions know; never for a launch."""
    known = {name: block.read(config[name], name, "ignore") for name, block in BLOCKS.items()}
    return {**config, **{name: settings.model_dump(exclude_unset=True) for name, settings in known.items()}}
