"""Composed recipes: composing one takes about a second, so each is composed once."""

from functools import cache
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from seal.launch.recipe import read_recipe
from seal.system.paths import HOME

SEAL = HOME / "exp" / "SEAL.yaml"
_read = cache(read_recipe)


def composed(recipe: Path, *overrides: str) -> DictConfig:
    """A recipe with overrides, as a copy that a test may change."""
    return _read(recipe, overrides).config.copy()


def changed(**values):
    """The main run with other values; __ stands for a dot."""
    config = composed(SEAL)
    for key, value in values.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    return config
