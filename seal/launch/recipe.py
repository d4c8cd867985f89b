"""Recipes: composed with Hydra from a file, the shared groups of `exp/` and verl's own defaults."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seal.launch.errors import LaunchError

HOME = Path(__file__).resolve().parents[2]


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
        OmegaConf.resolve(config)
    except MissingConfigException as error:
        raise LaunchError(f"{path} cannot be composed: {_first_line(error)}.") from error
    except (ConfigCompositionException, HydraException, OmegaConfBaseException) as error:
        raise LaunchError(_override_sentence(path, overrides, error)) from error
    missing = sorted(key for key in OmegaConf.missing_keys(config) if key.startswith(("trainer.", "seal.")))
    if missing:
        raise LaunchError(f"{path} must set {', '.join(missing)}.")
    return config


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


def _override_sentence(path: Path, overrides: Sequence[str], error: Exception) -> str:
    for override in overrides:
        key = override.split("=", 1)[0].lstrip("+~")
        if key in str(error) or key in str(error.__cause__ or ""):
            near = difflib.get_close_matches(key, _known_keys(path), n=1)
            hint = f"; did you mean {near[0]}?" if near else "; put + before it to add a new key on purpose."
            return f"The override {override!r} does not fit {path}: {_first_line(error.__cause__ or error)}{hint}"
    return f"{path} cannot be composed: {_first_line(error.__cause__ or error)}"


def _known_keys(path: Path) -> list[str]:
    return list(_flat(OmegaConf.to_container(_compose(path, []), resolve=False)))


def _flat(tree: dict, prefix: str = ""):
    for key, value in tree.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
