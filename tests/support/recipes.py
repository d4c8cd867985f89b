"""Composed recipes: composing one takes about a second, so each is composed once."""

from functools import cache
from pathlib import Path

from omegaconf import DictConfig

from seal.launch.recipe import read_recipe

_read = cache(read_recipe)


def composed(recipe: Path, *overrides: str) -> DictConfig:
    """A recipe with overrides, as a copy that a test may change."""
    return _read(recipe, overrides).config.copy()
