"""Recipes: composed with Hydra from a file, the shared groups of `exp/` and verl's own defaults.

Files are read here, nothing is written or started.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from env_service.environments.kit.environment import ToolEnvironment
from env_service.environments.registry import get_environment
from seal.data.selection import RunRows
from seal.method.controls import relabel
from seal.method.diagnosis.rules import taxonomy_of
from seal.method.interface.cues import catalogue
from seal.method.interface.evolve import cues_in_use
from seal.method.profile import Tally
from seal.method.reweighting import initial_rho
from seal.records.changes import flatten
from seal.records.folder import RunFolder
from seal.rollout.harness.task import require_harness
from seal.settings import BLOCKS, EnvServiceSettings, SealSettings, SettingsError
from seal.settings.base import recipe_defaults
from seal.settings.interface import EvolveSettings
from seal.settings.sentences import nearest, shown
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from seal.system.text import first_line

EXP = HOME / "exp"
DEFAULTS = EXP / "base" / "seal.yaml"
OPEN = ("seal.process_env.", "seal.reweighting.rho.")
"""Blocks of ours that take any key."""
_VALUE = re.compile(r"(?!hydra\.)\w+\.[\w.]*=")
"""An override that gives one key another value."""
_KINDS = (
    ((bool,), "true or false"),
    ((int, float), "a number"),
    ((str, list), "a text or a list"),
    ((dict,), "a block of settings"),
)
"""The types that a value may have, by the type of its default, and their name in a sentence."""


@dataclass(frozen=True)
class Recipe:
    """The configuration of a run, read and checked once, so that every value below is valid by its type."""

    config: DictConfig
    """The whole configuration, resolved; verl reads its part of it."""
    settings: SealSettings
    """The block `seal`."""
    service: EnvServiceSettings
    """The block `env_service`."""
    silent: tuple[str, ...] = ()
    """The cues for which its prompt modes have no words; they are left out."""

    @classmethod
    def of(cls, config: DictConfig) -> Self:
        """Read a composed configuration; SettingsError for the first setting, of ours or of verl's, that is wrong."""
        OmegaConf.resolve(config)
        resolved = OmegaConf.to_container(config, throw_on_missing=False)
        settings, service = SealSettings.of(resolved), EnvServiceSettings.of(resolved)
        taxonomy = settings.diagnosis.taxonomy
        for key, check in (
            ("seal.diagnosis.taxonomy", lambda: cues_in_use(EvolveSettings(), taxonomy_of(taxonomy))),
            ("seal.diagnosis.source", lambda: relabel((), Tally(), settings.diagnosis, taxonomy_of(taxonomy), 0, 0)),
            ("seal.reweighting.rho", lambda: initial_rho(settings.reweighting, taxonomy_of(taxonomy))),
            ("seal.interface.evolve.left_out", lambda: cues_in_use(settings.interface.evolve, taxonomy_of(taxonomy))),
            ("seal.rollout.harness", partial(require_harness, settings.rollout.harness)),
        ):
            try:
                with chdir(HOME):  # where a run works
                    check()
            except ValueError as error:
                raise SettingsError(key, f"{key}: {str(error).rstrip('.')}.") from error
        blocks = [name for name in _defaults() if "." not in name]
        if added := sorted(set(config) - set(blocks)):
            raise SettingsError(added[0], f"{added[0]} is not a block{nearest(added[0], blocks)}")
        _require_types(resolved)
        left_out, silent = settings.interface.evolve.left_out, tuple(_without_words(settings, service))
        if added := [name for name in silent if name not in left_out]:
            config.seal.interface.evolve.left_out = [*left_out, *added]
            settings = SealSettings.of(OmegaConf.to_container(config))
        return cls(config, settings, service, silent)

    @property
    def name(self) -> str:
        return self.config.trainer.experiment_name

    @property
    def run_dir(self) -> Path:
        return HOME / self.settings.run_dir

    @property
    def last_step(self) -> int:
        """The step with which the run ends."""
        return total_steps(self.config, len(self.rows.train))

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.run_dir)

    @property
    def checkpoints(self) -> Path:
        return HOME / self.config.trainer.default_local_dir

    @property
    def model_folder(self) -> Path:
        """The model's folder; it does not exist for a model of the hub."""
        return HOME / Path(self.config.actor_rollout_ref.model.path).expanduser()

    @property
    def environments(self) -> tuple[str, ...]:
        """The environments that it trains or validates on."""
        return self.settings.data.environments(self.service.env_type)

    @property
    def task_files(self) -> tuple[str, ...]:
        """The files of synthesised tasks that it names, found from the repository like all files of its selections."""
        return tuple(str(HOME / file) for file in self.settings.data.task_files())

    @cached_property
    def rows(self) -> RunRows:
        """The tasks that it trains and validates on; LaunchError if a selection leaves none."""
        try:
            with chdir(HOME):
                return RunRows.of(self.settings.data, self.service.env_type)
        except ValueError as error:
            raise LaunchError(str(error)) from error


def read_recipe(path: Path, overrides: Sequence[str]) -> Recipe:
    """The recipe of a file, looked up here and then in the repository, with command-line overrides (key=value).

    Raises LaunchError for a missing file, an unknown key, a value that is required
    and not given, or one of the wrong kind.
    """
    given, path = path, path if path.is_file() else HOME / path
    if not path.is_file():
        known = [str(p.relative_to(HOME)) for p in sorted(EXP.glob("*.yaml"))]
        hint = nearest(f"exp/{path.stem}.yaml", known, f"; there are {', '.join(known)}.")
        raise LaunchError(f"There is no recipe {given}{hint}")
    if path.suffix != ".yaml":
        raise LaunchError(f"{given} is not a .yaml file, and Hydra composes no other: name it {path.stem}.yaml.")
    for override in overrides:
        if "=" not in override:
            raise LaunchError(
                f"{override!r} is neither an option nor a setting; write KEY=VALUE, as in trainer.n_gpus_per_node=8."
            )
    try:
        config = _compose(path, overrides)
        _refuse_nulls(config)
        if OmegaConf.is_missing(config.seal, "name"):
            config.seal.name = path.stem
        _anchor(config, HOME if path.resolve().is_relative_to(HOME) else path.resolve().parent)
        recipe = Recipe.of(config)
    except SettingsError as error:
        raise LaunchError(_attribute(path, overrides, error)) from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise LaunchError(f"{path}, or what it names, is not YAML in UTF-8: {' '.join(str(error).split())}.") from error
    except MissingConfigException as error:
        known = f"; choose one of {', '.join(error.options)}" if error.options else ""
        raise LaunchError(f"{path} cannot be composed: {first_line(str(error)).rstrip('.')}{known}.") from error
    except (HydraException, OmegaConfBaseException) as error:
        told = f"{error} {error.__cause__}"
        if wrong := next((each for each in overrides if each.split("=", 1)[0].lstrip("+~") in told), None):
            raise LaunchError(_unfit(path, wrong, error)) from error
        raise LaunchError(f"{path} cannot be composed: {_reason(error)}.") from error
    missing = sorted(key for key in OmegaConf.missing_keys(config) if not key.startswith("reward."))  # one of verl's
    if missing:
        raise LaunchError(f"{path} must set {', '.join(missing)}.")
    return recipe


def _without_words(settings: SealSettings, service: EnvServiceSettings) -> Iterator[str]:
    """The cues for which the prompt modes of training have no words: in all its environments, or as `environment/cue`.

    An environment that is not installed here, or has no such mode, is left to the checks of a launch.
    """
    compact = {}
    for name in settings.data.model_copy(update={"val": ()}).environments(service.env_type):
        with suppress(ValueError):
            environment = get_environment(name)
            if isinstance(environment, ToolEnvironment):
                compact[name] = environment.form(service.mode(name)).cue_wording.compact
    for cue in catalogue().values():
        silent = [name for name, short in compact.items() if not cue.shows(short)]
        yield from [cue.name] if silent and len(silent) == len(compact) else [f"{name}/{cue.name}" for name in silent]


@cache
def _defaults(resolve: bool = False) -> dict[str, Any]:
    """The default of every key and block that every recipe starts from; resolve: a text stands for a required value."""
    config = _compose(DEFAULTS, []).copy()
    if resolve:
        config.seal.name = "required"  # others follow it
        for key in OmegaConf.missing_keys(config):
            OmegaConf.update(config, key, "required")
    return dict(flatten(OmegaConf.to_container(config, resolve=resolve)))


def _refuse_nulls(config: DictConfig) -> None:
    """SettingsError for the first null key with a default, or block with a value; a block of ours checks its keys."""
    for key, value in flatten(OmegaConf.to_container(config)):
        default = None if key.startswith(("seal.", "env_service.")) else _defaults(resolve=True).get(key)
        block = isinstance(default, dict) and not isinstance(value, dict) and "${" not in str(value)
        if block or (value is None and default is not None):
            raise SettingsError(key, f"{key} is {shown(value)}; it must be {_kind(default)[1]}.")


def _require_types(resolved: Mapping[str, Any]) -> None:
    """SettingsError for the first key, of ours or of verl's, whose value has another type than its default.

    A text is not a switch: verl would read `off` as true. A default of null, or one that follows another key, allows
    any type.
    """
    for key, value in flatten(resolved):
        default = _defaults().get(key)
        if None in (value, default) or default == "???" or (isinstance(default, str) and "${" in default):
            continue
        types, name = _kind(default)
        if type(value) not in types:
            raise SettingsError(key, f"{key} is {shown(value)}; it must be {name}.")


def _kind(default: Any) -> tuple[tuple[type, ...], str]:
    return next(kind for kind in _KINDS if type(default) in kind[0])


def _attribute(path: Path, overrides: Sequence[str], error: SettingsError) -> str:
    """The sentence about a setting, with the override or the recipe that sets it."""
    for override in reversed(overrides):
        key = override.split("=", 1)[0].lstrip("+~")
        if error.key == key or error.key.startswith((f"{key}.", f"{key}[")) or key.startswith(f"{error.key}."):
            return f"The override {override!r} does not fit {path}: {error}"
    return f"{path}: {error}"


def _anchor(config: DictConfig, base: Path) -> None:
    """Make the recipe's own paths absolute, because a worker may start anywhere.

    They start from the repository; if the recipe is elsewhere, the paths of its results, and of a model that is there,
    start from its folder. A run's name may be a number.
    """
    rollout, model = config.actor_rollout_ref.rollout, config.actor_rollout_ref.model
    name = config.trainer.experiment_name = str(config.trainer.experiment_name)
    if Path(name).name != name or name in ("", ".."):
        raise SettingsError(
            "trainer.experiment_name",
            f"trainer.experiment_name is {name!r}; it must be a folder's name, without /.",
        )
    _make_absolute(config.seal, "run_dir", base)
    if not OmegaConf.is_interpolation(config.trainer, "default_local_dir"):
        _make_absolute(config.trainer, "default_local_dir", HOME)
    _make_absolute(rollout.agent, "agent_loop_config_path", HOME)
    if not OmegaConf.is_missing(model, "path") and isinstance(model.path, str):
        for folder in (base, HOME):
            if (folder / Path(model.path).expanduser()).exists():
                _make_absolute(model, "path", folder)


def _make_absolute(block: DictConfig, key: str, base: Path) -> None:
    if isinstance(block[key], str):
        block[key] = str(base / Path(block[key]).expanduser())


def _compose(path: Path, overrides: Sequence[str]) -> DictConfig:
    """Hydra's unresolved composition, with values set at the end, as Hydra sets them; LaunchError for a wrong one."""
    values = [override for override in overrides if _VALUE.match(override)]
    choices = tuple(override for override in overrides if override not in values)
    config = _hydra(path, choices, path.stat().st_mtime_ns).copy()
    for override in values:
        try:
            key, _, text = override.partition("=")
            text = f"'{Path(text).expanduser()}'" if text.startswith("~/") else text
            (value,) = OverridesParser.create().parse_overrides([f"{key}={text}"])
            if value.is_sweep_override():
                raise HydraException("it gives several values; write a list as [1,2]")
            OmegaConf.update(config, value.key_or_group, value.value())
        except (HydraException, OmegaConfBaseException, ValueError, TypeError) as error:
            raise LaunchError(_unfit(path, override, error)) from error
    return config


@lru_cache(maxsize=32)
def _hydra(path: Path, choices: tuple[str, ...], _modified: int) -> DictConfig:
    ConfigStore.instance().store("seal_settings", {name: recipe_defaults(block) for name, block in BLOCKS.items()})
    spec = find_spec("verl")
    if spec is None or spec.origin is None:
        raise LaunchError("verl is not installed in this environment: run `bash install.sh` and activate it.")
    search = f"hydra.searchpath=['file://{EXP}','file://{Path(spec.origin).parent / 'trainer' / 'config'}']"
    with initialize_config_dir(str(path.parent.resolve()), version_base=None):
        return compose(path.stem, overrides=[search, *choices])


def _unfit(path: Path, override: str, error: Exception) -> str:
    """The sentence about an override that cannot be set, with the nearest key if its own is unknown."""
    key, reason, hint = override.split("=", 1)[0].lstrip("+~"), _reason(error), "."
    if isinstance(error, OverrideParseException):
        hint = "; write KEY=VALUE without a dash before it, and quote a value with special characters: \"KEY='a=b'\"."
    if reason.endswith("does not exist"):
        closed = key.startswith(("seal.", "env_service.")) and not key.startswith(OPEN)
        others = [name for name in _defaults() if not key.startswith((f"{name}.", *OPEN))]
        hint = nearest(key, others, "." if closed else "; put + before it to add a new key on purpose.")
    return f"The override {override!r} does not fit {path}: {reason}{hint}"


def _reason(error: Exception) -> str:
    reason = first_line(str(error.__cause__ or error)).rstrip(".")
    reason = reason.replace("Key 'seal' is not in struct", "its defaults name neither base/seal nor a recipe that does")
    return reason.replace("is not in struct", "does not exist")


def total_steps(config: DictConfig, tasks: int) -> int:
    """The step with which a run on this many training tasks ends; verl drops the incomplete batch of an epoch."""
    trainer = config.trainer
    if trainer.total_training_steps is not None:
        return count(config, "trainer.total_training_steps")
    return tasks // count(config, "data.train_batch_size") * count(config, "trainer.total_epochs")


def count(config: DictConfig, key: str) -> int:
    """The value of a key that counts something; LaunchError if it is not a whole number of at least 1."""
    value = OmegaConf.select(config, key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise LaunchError(f"{key}={value} must be a whole number of at least 1.")
    return value
