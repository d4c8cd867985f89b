"""Recipes: composed with Hydra from a file, the shared groups of `exp/` and verl's own defaults."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seal.errors import LaunchError
from seal.paths import HOME

DEFAULTS = HOME / "exp" / "base" / "seal.yaml"
OPEN = ("seal.process_env.", "seal.reweighting.rho.")
"""Blocks of ours that hold any key."""


def compose_recipe(path: Path, overrides: Sequence[str]) -> DictConfig:
    """The resolved configuration of a recipe with command-line overrides (key=value).

    Raises LaunchError for a missing file, an unknown key, or a value that is
    required and not given.
    """
    if not path.is_file():
        known = ", ".join(str(p.relative_to(HOME)) for p in sorted((HOME / "exp").glob("*.yaml")))
        raise LaunchError(f"There is no recipe {path}; pass one with --conf, for instance {known}.")
    for override in overrides:
        if "=" not in override:
            raise LaunchError(
                f"{override!r} is no override; write key=value after --, as in trainer.n_gpus_per_node=8."
            )
    try:
        config = _compose(path, overrides)
        if OmegaConf.is_missing(config.seal, "name"):
            config.seal.name = path.stem
        _refuse_unknown(path, config, overrides)
        _anchor(config)
        OmegaConf.resolve(config)
        _refuse_mistyped(path, config)
    except MissingConfigException as error:
        raise LaunchError(f"{path} cannot be composed: {_missing_sentence(error)}.") from error
    except (ConfigCompositionException, HydraException, OmegaConfBaseException) as error:
        raise LaunchError(_override_sentence(path, overrides, error)) from error
    missing = sorted(key for key in OmegaConf.missing_keys(config) if key.startswith(("trainer.", "seal.")))
    if missing:
        raise LaunchError(f"{path} must set {', '.join(missing)}.")
    return config


def _refuse_unknown(path: Path, config: DictConfig, overrides: Sequence[str]) -> None:
    """LaunchError for a key of our blocks that no default declares: misspelt in a file, it would be ignored."""
    declared = set(_flat(OmegaConf.to_container(OmegaConf.load(DEFAULTS))))
    added = tuple(override.split("=", 1)[0].lstrip("+") for override in overrides if override.startswith("+"))
    blocks = {name: config[name] for name in ("seal", "env_service")}
    for key in _flat(OmegaConf.to_container(OmegaConf.create(blocks), resolve=False)):
        if key not in declared and not key.startswith((*OPEN, *added)):
            raise LaunchError(f"{path} sets {key}, which is no key{_nearest(key, declared)}")


def _refuse_mistyped(path: Path, config: DictConfig) -> None:
    """LaunchError for a block that nothing reads, and for a text where the defaults have a switch or a number.

    `off` is a text and would count as true.
    """
    composed = OmegaConf.to_container(_compose(DEFAULTS, []), resolve=False)
    if added := sorted(set(config) - set(composed)):
        raise LaunchError(f"{path} or an override adds {added[0]}, which is no block{_nearest(added[0], composed)}")
    defaults = dict(_leaves(composed))
    for key, value in _leaves(OmegaConf.to_container(config)):
        default = defaults.get(key)
        if isinstance(default, bool):
            right, wanted = isinstance(value, bool), "true or false"
        elif isinstance(default, int | float):
            right, wanted = isinstance(value, int | float) and not isinstance(value, bool), "a number"
        else:
            continue
        ours = key.startswith(("seal.", "env_service."))
        if not right and (ours or value is not None):
            raise LaunchError(f"{path} or an override sets {key} to {value!r}: it takes {wanted}.")


def _anchor(config: DictConfig) -> None:
    """Make the recipe's own paths absolute: they start from the repository, and a worker may start anywhere."""
    config.seal.run_dir = str(HOME / config.seal.run_dir)
    agent = config.actor_rollout_ref.rollout.agent
    agent.agent_loop_config_path = str(HOME / agent.agent_loop_config_path)
    model = config.actor_rollout_ref.model
    if not OmegaConf.is_missing(model, "path") and (HOME / model.path).exists():
        model.path = str(HOME / model.path)


def _compose(path: Path, overrides: Sequence[str]) -> DictConfig:
    search = ",".join(f"file://{folder}" for folder in (HOME / "exp", _verl_config()))
    with initialize_config_dir(str(path.parent.resolve()), version_base=None):
        return compose(path.stem, overrides=[f"hydra.searchpath=[{search}]", *overrides])


def _verl_config() -> Path:
    # Found without importing verl, which would load torch.
    spec = find_spec("verl")
    if spec is None or spec.origin is None:
        raise LaunchError("verl is not installed in this environment: run `bash install.sh` and activate it.")
    return Path(spec.origin).parent / "trainer" / "config"


def _missing_sentence(error: MissingConfigException) -> str:
    known = f"; choose one of {', '.join(error.options)}" if error.options else ""
    return _first_line(error) + known


def _override_sentence(path: Path, overrides: Sequence[str], error: Exception) -> str:
    for override in overrides:
        key = override.split("=", 1)[0].lstrip("+~")
        if key in str(error) or key in str(error.__cause__ or ""):
            hint = _nearest(key, _known_keys(path), "; put + before it to add a new key on purpose.")
            return f"The override {override!r} does not fit {path}: {_first_line(error.__cause__ or error)}{hint}"
    return f"{path} cannot be composed: {_first_line(error.__cause__ or error)}"


def _nearest(key: str, known: Iterable[str], otherwise: str = ".") -> str:
    near = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else otherwise


def _known_keys(path: Path) -> list[str]:
    return list(_flat(OmegaConf.to_container(_compose(path, []), resolve=False)))


def _flat(tree: dict, prefix: str = ""):
    for key, value in tree.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")


def _leaves(tree: dict, prefix: str = ""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
