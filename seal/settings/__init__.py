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

__all__ = ["BLOCKS", "EnvServiceSettings", "SealSettings", "SettingsError", "task_files"]


def task_files(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The files of synthesised tasks that a composed configuration names; SettingsError for a wrong one.

    Relative ones are below the checkout, where the launcher works.
    """
    return SealSettings.of(config).data.task_files()
