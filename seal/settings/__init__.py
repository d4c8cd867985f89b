"""Every key of `seal.*` and `env_service.*`: type, bounds, default and description, once.

To add a key, add a field with its docstring to the model of its block, and run
`seal settings --out docs/settings.md`. Rooms take the models; recipes hold what differs.
"""

from collections.abc import Mapping
from typing import Any

from seal.settings.data import names_environment
from seal.settings.run import SealSettings
from seal.settings.sentences import SettingsError
from seal.settings.service import EnvServiceSettings

BLOCKS = {"seal": SealSettings, "env_service": EnvServiceSettings}

__all__ = ["BLOCKS", "EnvServiceSettings", "SealSettings", "SettingsError", "recorded", "task_files"]


def recorded(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration that a run recorded, without the settings that only other versions know; never for a launch."""
    known = {name: block.read(config[name], name, "ignore") for name, block in BLOCKS.items()}
    return {**config, **{name: settings.model_dump(exclude_unset=True) for name, settings in known.items()}}


def task_files(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The files of synthesised tasks that a run's configuration names, also one of an earlier version.

    Relative ones are below the checkout, where the launcher works.
    """
    named = list(config["env_service"].get("task_files") or ())
    data = config["seal"]["data"]
    for selection in (data["train"], *data["val"], data.get("withdrawal")):
        mixture = (selection or {}).get("mixture") or ()
        sources = [mixture] if isinstance(mixture, Mapping) else mixture
        named += [source["tasks"] for source in sources if not names_environment(source["tasks"])]
    return tuple(dict.fromkeys(named))
