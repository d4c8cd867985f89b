"""BFCL as an environment of the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from env_service.environments.base import Guard, Json
from env_service.environments.bfcl import splits
from env_service.environments.bfcl.catalog import CATEGORIES, data_hash, load_tasks, package_version
from env_service.environments.bfcl.dialogue import BfclEpisode
from env_service.environments.bfcl.settings import EVALUATION_SPLITS, read_settings
from env_service.environments.bfcl.verifier import reference


class BfclEnvironment:
    """The 800 multi-turn tasks of the Berkeley function-calling benchmark."""

    name = "bfcl"

    def task_ids(self, split: str) -> Sequence[str]:
        """Return the ids of a category or of one side of a split; all ids without a split.

        train and val (test, eval) are the sides of the leak-free default split;
        ValueError lists the names if `split` is unknown.
        """
        ids = list(load_tasks())
        if split in CATEGORIES:
            return [task.id for task in load_tasks().values() if task.category == split]
        sides = {"": ids, "all": ids, "train": splits.task_ids()["train"]}
        sides |= {name: splits.task_ids()["eval"] for name in EVALUATION_SPLITS}
        sides |= {f"released_ids_{side}": held for side, held in splits.task_ids("released_ids").items()}
        if split not in sides:
            raise ValueError(
                f"split {split!r} is unknown; choose one of {', '.join(filter(None, (*CATEGORIES, *sides)))}."
            )
        return sides[split]

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> BfclEpisode:
        """Start an episode of a task or, with params["turns"], of its first turns."""
        tasks = load_tasks()
        if task_id not in tasks:
            raise ValueError(f"task_id {task_id!r} is unknown; ids look like multi_turn_base_0.")
        settings = read_settings(dict(params))
        task = tasks[task_id]
        if settings.turns is not None:
            task = task.prefix(settings.turns)
        return BfclEpisode(task, settings, guard)

    def prepare(self) -> Iterator[None]:
        """Run every reference once, so that episodes find it done and memory does not grow later."""
        for task in load_tasks().values():
            reference(task)
            yield

    def version(self) -> Json:
        """Return the data's hash and the package's version."""
        return {"data_hash": data_hash(), "bfcl_eval": package_version()}
