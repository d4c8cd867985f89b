"""The places that a run writes to, whether it can, and the room for its checkpoints; nothing is written here."""

import os
import shutil
from pathlib import Path
from tempfile import TemporaryFile

from omegaconf import OmegaConf

from seal.launch.recipe import Recipe
from seal.system.errors import LaunchError
from seal.training.checkpoints import GIB, REMOVING, SAVING
from seal.training.cluster import uses_existing_cluster

LONGEST = 107 - len("/ray/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")
"""Bytes of a temporary folder's name: Linux allows 107 for a socket, and Ray appends the rest."""


def check_places(recipe: Recipe) -> None:
    """LaunchError for a place that cannot be written, or whose name Ray's sockets cannot have."""
    for key, folder in (("seal.run_dir", recipe.run_dir), ("trainer.default_local_dir", recipe.checkpoints)):
        if not can_write(folder):
            raise LaunchError(f"{key}={folder} cannot be written: set it to another folder.")
    known = {**os.environ, **recipe.settings.process_env}
    home = Path(known.get("HOME") or Path.home())
    cache = Path(known.get("HF_HOME") or Path(known.get("XDG_CACHE_HOME") or home / ".cache", "huggingface"))
    wanted = {Path(known.get("HF_DATASETS_CACHE") or cache / "datasets"): "HF_DATASETS_CACHE"}
    if not uses_existing_cluster(recipe.config):
        own = OmegaConf.select(recipe.config, "ray_kwargs.ray_init._temp_dir")
        temporary = str(own or known.get("RAY_TMPDIR") or known.get("TMPDIR") or "/tmp")
        if not temporary.isascii() or len(temporary) > LONGEST:
            raise LaunchError(
                f"Ray's sockets cannot lie in {temporary}, whose name is longer than {LONGEST} bytes or not ASCII: set "
                "TMPDIR to a folder with a shorter one, such as /tmp."
            )
        wanted[Path(temporary)] = "TMPDIR"
        token = home / ".ray" / "auth_token"
        if not token.is_file() and not known.keys() & {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"}:
            wanted[token] = "HOME"
    for place, variable in wanted.items():
        if not can_write(place):
            raise LaunchError(f"{place} cannot be written: set {variable} to a folder that can.")


def check_disk(recipe: Recipe) -> None:
    """LaunchError without room for checkpoints; what an earlier launch left counts as room because it is replaced."""
    folder, least = recipe.checkpoints, recipe.settings.min_free_gb
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    own = (path for name in ("global_step_*", SAVING, REMOVING) for path in folder.glob(f"{name}/**/*"))
    kept = sum(path.stat().st_size for path in own if path.is_file())
    free = (shutil.disk_usage(existing).free + kept) / GIB
    if free < least:
        raise LaunchError(
            f"{existing} has {free:.1f} GiB for checkpoints and seal.min_free_gb={least:g} are needed: "
            "free some, set trainer.default_local_dir or seal.run_dir to another disk, or seal.checkpoints to keep "
            "fewer with a lower seal.min_free_gb."
        )


def can_write(path: Path) -> bool:
    """Return whether a file, or a folder that may have to be made, can be written; tried with an unnamed file."""
    existing = next(place for place in (path, *path.parents) if os.path.exists(place))
    if not existing.is_dir():
        return existing == path and os.access(existing, os.W_OK)
    try:
        TemporaryFile(dir=existing).close()
    except OSError:
        return False
    return True
