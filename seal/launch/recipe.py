"""Recipes: composed with Hydra from a file, the shared groups of `exp/` and verl's own defaults."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seal.launch.verl_keys import require_types, verl_folder
from seal.reweighting import initial_rho
from seal.settings import BLOCKS, EnvServiceSettings, SealSettings, SettingsError
from seal.settings.base import recipe_defaults
from seal.settings.sentences import nearest
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from seal.system.text import first_line

DEFAULTS = HOME / "exp" / "base" / "seal.yaml"
OPEN = ("seal.process_env.", "seal.reweighting.rho.")
"""Blocks of ours that take any key."""


def compose_recipe(path: Path, overrides: Sequence[str]) -> DictConfig:
    """The resolved configuration of a recipe with command-line overrides (key=value).

    Raises LaunchError for a missing file, an unknown key, a value that is required
    and not given, or one of the wrong kind.
    """
    if not path.is_file():
        known = ", ".join(str(p.relative_to(HOME)) for p in sorted((HOME / "exp").glob("*.yaml")))
        raise LaunchError(f"There is no recipe {path}; pass one with --conf, for instance {known}.")
    for override in overrides:
        if "=" not in override:
            raise LaunchError(
                f"{override!r} is not an override; write key=value after --, as in trainer.n_gpus_per_node=8."
            )
    try:
        config = _compose(path, overrides)
        if OmegaConf.is_missing(config.seal, "name"):
            config.seal.name = path.stem
        require_valid(config)
        _anchor(config)
        OmegaConf.resolve(config)
    except SettingsError as error:
        raise LaunchError(_sourced(path, overrides, error)) from error
    except MissingConfigException as error:
        known = f"; choose one of {', '.join(error.options)}" if error.options else ""
        raise LaunchError(f"{path} cannot be composed: {first_line(str(error)).rstrip('.')}{known}.") from error
    except (ConfigCompositionException, HydraException, OmegaConfBaseException) as error:
        raise LaunchError(_override_sentence(path, overrides, error)) from error
    missing = sorted(key for key in OmegaConf.missing_keys(config) if key.startswith(("trainer.", "seal.")))
    if missing:
        raise LaunchError(f"{path} must set {', '.join(missing)}.")
    return config


def require_valid(config: DictConfig) -> None:
    """SettingsError for the first setting of a configuration, of ours or of verl's, that cannot be used."""
    settings = SealSettings.of(config)
    EnvServiceSettings.of(config)
    try:
        initial_rho(settings.reweighting, settings.diagnosis.taxonomy)
    except ValueError as error:
        raise SettingsError("seal.reweighting.rho", f"seal.reweighting.rho: {error}.") from error
    defaults = _defaults()
    if added := sorted(set(config) - set(defaults)):
        raise SettingsError(added[0], f"{added[0]} is not a block{nearest(added[0], defaults)}")
    written, resolved = (OmegaConf.to_container(config, resolve=resolve) for resolve in (False, True))
    require_types(written, resolved, defaults)


@functools.cache
def _defaults() -> dict[str, Any]:
    """What every recipe starts from."""
    return OmegaConf.to_container(_compose(DEFAULTS, []), resolve=False)


def _sourced(path: Path, overrides: Sequence[str], error: SettingsError) -> str:
    """The sentence about a setting, with the override or the recipe that sets it."""
    for override in reversed(overrides):
        key = override.split("=", 1)[0].lstrip("+~")
        if error.key == key or error.key.startswith((f"{key}.", f"{key}[")) or key.startswith(f"{error.key}."):
            return f"The override {override!r} does not fit {path}: {error}"
    return f"{path}: {error}"


def _anchor(config: DictConfig) -> None:
    """Make the recipe's own paths absolute: they start from the repository, and a worker may start anywhere."""
    config.seal.run_dir = str(HOME / config.seal.run_dir)
    if config.seal.interface.initial is not None:
        config.seal.interface.initial = str(HOME / Path(config.seal.interface.initial).expanduser())
    agent = config.actor_rollout_ref.rollout.agent
    agent.agent_loop_config_path = str(HOME / agent.agent_loop_config_path)
    model = config.actor_rollout_ref.model
    if not OmegaConf.is_missing(model, "path") and (HOME / model.path).exists():
        model.path = str(HOME / model.path)


def _compose(path: Path, overrides: Sequence[str]) -> DictConfig:
    node = {name: recipe_defaults(block) for name, block in BLOCKS.items()}
    ConfigStore.instance().store("seal_settings", node)
    search = ",".join(f"file://{folder}" for folder in (HOME / "exp", verl_folder() / "trainer" / "config"))
    with initialize_config_dir(str(path.parent.resolve()), version_base=None):
        return compose(path.stem, overrides=[f"hydra.searchpath=[{search}]", *overrides])


def _override_sentence(path: Path, overrides: Sequence[str], error: Exception) -> str:
    reason = first_line(str(error.__cause__ or error)).rstrip(".")
    for override in overrides:
        key = override.split("=", 1)[0].lstrip("+~")
        if key in str(error) or key in str(error.__cause__ or ""):
            closed = key.startswith(("seal.", "env_service.")) and not key.startswith(OPEN)
            known = _flat(OmegaConf.to_container(_compose(path, []), resolve=False))
            hint = nearest(key, known, "." if closed else "; put + before it to add a new key on purpose.")
            return f"The override {override!r} does not fit {path}: {reason}{hint}"
    return f"{path} cannot be composed: {reason}"


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
