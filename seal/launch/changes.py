"""What a resume changes in the settings of a run, and what it must not change."""

import json

from omegaconf import OmegaConf

from seal.launch.recipe import Recipe
from seal.launch.record import without_secrets
from seal.records.changes import compare, training_configs
from seal.settings.sentences import shown
from seal.system.errors import LaunchError

KEPT = (
    "seal.seed",
    "seal.data.train",
    "data.train_batch_size",
    "actor_rollout_ref.model.path",
    "actor_rollout_ref.model.lora_rank",
    "trainer.v1.trainer_mode",
)
"""Keys and blocks that a checkpoint depends on: the order of the tasks, the weights, the state of the trainer."""


def describe_changes(recipe: Recipe, step: int) -> tuple[str, ...]:
    """A sentence for each setting that a run changes when it continues after `step`; LaunchError for one of KEPT."""
    now = json.loads(json.dumps(without_secrets(OmegaConf.to_container(recipe.config))))
    before = [*training_configs(recipe.folder, step).values()]
    changes = compare(before[-1], now, step) if before else []
    for _, key, old, new in (change for change in changes if not change.moves):
        if any(key == kept or key.startswith(f"{kept}.") for kept in KEPT):
            raise LaunchError(
                f"{key} is {shown(new)}, but {recipe.run_dir} was trained with {shown(old)} to step {step}: "
                "set it back, or set another trainer.experiment_name."
            )
    return tuple(f"{change}." for change in changes)
