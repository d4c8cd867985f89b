"""What a resumed run changes in the settings that it was launched with before; its log of launches is read."""

import json
from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from seal.launch.recipe import Recipe, flatten
from seal.launch.record import without_secrets
from seal.settings.sentences import shown
from seal.system.errors import LaunchError
from seal.system.jsonl import Line, read_jsonl

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
    changed = [*_changes(recipe, step)]
    for key, old, new in changed:
        if any(key == kept or key.startswith(f"{kept}.") for kept in KEPT):
            raise LaunchError(
                f"{key} is {shown(new)}, but {recipe.run_dir} was trained with {shown(old)} to step {step}: "
                "set it back, or set another trainer.experiment_name."
            )
    return tuple(f"after step {step} {key} changes from {shown(old)} to {shown(new)}." for key, old, new in changed)


def _changes(recipe: Recipe, step: int) -> Iterator[tuple[str, Any, Any]]:
    path = recipe.folder.launches
    lines = [line.value for line in read_jsonl(path) if isinstance(line, Line)] if path.exists() else []
    if not (earlier := [line["config"] for line in lines if line["step"] <= step]):
        return
    new = json.loads(json.dumps(without_secrets(OmegaConf.to_container(recipe.config))))
    before, now = dict(flatten(earlier[-1])), dict(flatten(new))
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if old != new and not isinstance(old, dict) and not isinstance(new, dict):
            yield key, old, new
