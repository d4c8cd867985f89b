"""The room for a run's checkpoints."""

import shutil

from seal.launch.recipe import Recipe
from seal.system.errors import LaunchError
from seal.training.checkpoints import GIB, REMOVING, SAVING


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
